// Answers for many prompts on any number of ranks. Under ZeRO-3 the ranks agree before each forward pass whether anyone
// still has one to run; who is done keeps lending its shards. So ranks may have any number of rows of any length.
//
// Example:
//   Generator generator(model, executor, control, device);
//   auto answers = generator.run(count, prompt_of_row, options);   // in input order, once each, on every rank
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/step_contract.h"
#include "lockstep/exec/executor.h"
#include "lockstep/infer/decode_batch.h"

namespace lockstep {

/// The prompt of a row; nullopt: the row is left out.
using PromptOfRow = std::function<std::optional<Features>(int64_t row)>;

class Generator {
 public:
  /// `gathers`: parameters are sharded, so that every pass concerns all ranks.
  Generator(const Model& model, Executor& executor, Communicator& control, bool gathers)
      : model_(model), executor_(executor), control_(control), gathers_(gathers) {}

  /// Rows [0, count) in blocks of batch_size, dealt to the ranks in turn; `prompt` is called on the rank that runs the
  /// row. A row whose prompt throws ends the run on all ranks with that error. Collective.
  std::vector<Generated> run(int64_t count, const PromptOfRow& prompt, const GenerateOptions& options);

 private:
  std::vector<Generated> run_mine(int64_t count, const PromptOfRow& prompt, const GenerateOptions& options);
  Agreement meet(Presence here, bool failed);
  void pass(DecodeBatch* batch, Presence here, Presence anywhere);

  const Model& model_;
  Executor& executor_;
  Communicator& control_;
  bool gathers_;
};

}  // namespace lockstep
