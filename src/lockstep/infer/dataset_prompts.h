// The prompts of a data set's rows for the generator: dealt to the ranks in turn and prepared ahead on threads.
//
// Example:
//   DatasetPrompts prompts(rows, processor, loader_options, control.recorder());
//   generator.run([&] { return prompts.next(); }, options, on_row);
//   prompts.skipped();      // rows that this rank could not use
#pragma once

#include <optional>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/guard/recorder.h"
#include "lockstep/infer/decode_slots.h"

namespace lockstep {

class DatasetPrompts {
 public:
  /// `options` as for a Loader; batch size, order of rows (unless given) and kind of features are set here.
  DatasetPrompts(const Dataset& dataset, const Processor& processor, LoaderOptions options, Recorder& recorder);

  /// Throws what the loader throws.
  std::optional<Prompt> next();
  const std::vector<SkippedRow>& skipped() const { return skipped_; }

 private:
  Loader loader_;
  Recorder& recorder_;
  std::vector<SkippedRow> skipped_;
};

}  // namespace lockstep
