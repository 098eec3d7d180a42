// The flags of `lockstep infer`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/batch_search.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/infer/decode_slots.h"

namespace lockstep {

struct InferFlags {
  RunFlags run;
  RowFlags rows;
  std::string input, output, prompt, system;
  std::vector<std::string> images;
  int64_t max_new_tokens = 256;
  BatchFlags batch;
  bool stream = true, overwrite = false;
  SamplingOptions sampling;
};

/// nullopt when --help was printed. Throws UserError(kUsage).
std::optional<InferFlags> parse_infer_flags(const std::vector<std::string>& args);

}  // namespace lockstep
