// Answers for many prompts on any number of ranks, by continuous batching (infer/turns.h): ranks may have any number of
// rows of any length.
//
// Example:
//   DatasetPrompts prompts(rows, processor, {…});
//   Generator generator(model, executor, control, plan.gathers());
//   auto answers = generator.run_all(prompts, options);   // in input order, once each, on every rank
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/infer/decode_slots.h"
#include "lockstep/infer/turns.h"

namespace lockstep {

/// The next prompt of this rank; nullopt: there are no more.
using PromptSource = std::function<std::optional<Prompt>()>;

class Generator {
 public:
  /// `gathers`: parameters are sharded, so that every pass concerns all ranks. Weights stay as they are while it lives, as it
  /// remembers what they have made of media and of prompts.
  Generator(const Model& model, Executor& executor, Communicator& control, bool gathers)
      : model_(model), control_(control), turns_(executor, control, gathers) {}

  /// Called on the rank that generates, in the order in which rows end.
  using OnRow = std::function<void(const Generated& row)>;

  /// Runs this rank's prompts to their ends. What `next` or `on_row` throws ends the run on all ranks with that error.
  /// Collective.
  void run(const PromptSource& next, const GenerateOptions& options, const OnRow& on_row);

  /// The same; all ranks' answers in the order of their rows, on every rank. `on_row`: may be empty. Collective.
  std::vector<Generated> run_all(const PromptSource& next, const GenerateOptions& options, const OnRow& on_row = {});

  /// Forward passes of this rank so far, those in which it only lent its shards among them.
  int64_t passes() const { return turns_.passes(); }

 private:
  const Model& model_;
  Communicator& control_;
  Turns turns_;
  MediaMemory media_;
  std::optional<PromptCache> prompts_;  // of the last run
};

/// The prompts of rows [0, count) dealt to the ranks in turn, made when asked for; nullopt: the row is left out.
PromptSource dealt_prompts(int64_t count, const Communicator& control,
                           std::function<std::optional<Features>(int64_t row)> prompt_of_row);

}  // namespace lockstep
