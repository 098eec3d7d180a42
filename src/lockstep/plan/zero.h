// ZeRO by one word: what is sharded over the ranks. Everything else about a stage follows from these three questions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/plan/loss_scaling.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

/// Gradients are always reduced as they are made, into the shard of the rank that owns them, in every stage: that is
/// what makes all stages agree bit for bit, also over accumulation. So 1 and 2 hold the same; both words are kept for
/// their users.
struct ZeroStage {
  int stage = 3;

  bool shards_optimizer() const { return stage >= 1; }
  bool shards_params() const { return stage == 3; }
  std::string name() const { return "zero" + std::to_string(stage); }

  /// The stage of DeepSpeedChoice::from_flag.
  static ZeroStage from_flag(const std::string& flag);
  bool operator==(const ZeroStage&) const = default;
};

struct SaidTwice {
  std::string key, flag, value;  // "gradient_clipping", "--max_grad_norm", "0.5"
  bool by_default = false;       // the file leaves it out, and DeepSpeed has this there: for flags that nobody gave
};

/// What --deepspeed says.
struct DeepSpeedChoice {
  ZeroStage zero;
  bool offload_optimizer = false, offload_params = false;  // to host memory
  std::optional<Dtype> reduce;                             // communication_data_type: of gradients between ranks
  std::optional<int64_t> rows_of_step;                     // train_batch_size: over all ranks and micro-batches
  bool decays_all = false;    // it makes the optimizer, of all parameters alike: biases and norms are decayed too
  bool says_clipping = true;  // false: a JSON without gradient_clipping, where DeepSpeed has its own
  LossScaling loss_scaling;   // fp16: where float16 is computed
  /// What the JSON says that a flag says too, which must agree with it.
  std::vector<SaidTwice> says = {};
  std::vector<std::string> ignored = {};  // keys that ask for what makes no difference here
  std::vector<std::string> unknown = {};  // keys that DeepSpeed itself has not

  /// "zero0" … "zero3", "0" … "3", "zero2_offload" (the optimizer), "zero3_offload" (weights too; ms-swift's words), or
  /// DeepSpeed JSON (a file's path or the text itself) with zero_optimization.stage. What such a file asks for and this
  /// build does not do is refused by key. DeepSpeed's older cpu_offload is understood. Throws UserError(kUsage).
  static DeepSpeedChoice from_flag(const std::string& flag);
};

}  // namespace lockstep
