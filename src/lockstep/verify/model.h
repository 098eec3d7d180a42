// A checkpoint loaded for verification: what its blocks compute, through the same executor that trains and answers.
//
// Example:
//   VerifyModel model(dir / "checkpoint", {.compute = Dtype::kF32});
//   const Named out = model.forward(inputs);         // logits and every named intermediate
//   const auto [loss, grads] = model.backward(inputs, 1.0 / targets);
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "lockstep/model/model.h"
#include "lockstep/plan/plan.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

class HfConfig;
class Executor;
class ParamStore;
class ShardedAdamW;
struct AdamWOptions;
struct Family;

/// An adapter over the checkpoint; none: the checkpoint alone.
struct VerifiedAdapter {
  std::filesystem::path dir = {};
  double loraplus_ratio = 1;
};

using Named = std::map<std::string, Tensor>;

/// The family that reads this config, or nullptr when none is built.
const Family* family_built(const HfConfig& config);

class VerifyModel {
 public:
  VerifyModel(const std::filesystem::path& checkpoint, const PlanOptions& plan, const AdamWOptions& adamw,
              const VerifiedAdapter& adapter = {});
  ~VerifyModel();

  /// Inputs as a reference stores them: input_ids, attention_mask, labels [B,T] i64, pixel_values, and what else
  /// the family's processor gives; of the first row, if it is said, speech_codes [K], speech_answer [begin, end) and
  /// speech_speaker, a token. Outputs under a reference's names: logits, inputs_embeds, layer_i, layer0_attn_out,
  /// vision_layer_i, last_hidden_state, pooled, …
  Named forward(const Named& inputs);
  /// Loss (summed cross entropy * weight), and that of speech (mean over codes) where inputs hold some; gradients are added to what the
  /// store holds.
  struct Losses {
    double text = 0, speech = 0;
  };
  Losses backward(const Named& inputs, double loss_weight);
  /// By released name; zeros for tensors that no block reads, as a reference has them. Of an adapter, its tensors alone, by
  /// their names in its files.
  Named gradients();
  Named weights();
  /// All of them, by released name, as weights() gives them. Throws std::out_of_range when one is missing.
  void set_weights(const Named& weights);
  /// Greedy continuation of every row, [B, steps] i64, through the KV cache.
  Tensor generate(const Named& inputs, int64_t steps);
  bool speaks() const;  // a talker is built
  /// What a talker says greedily of an answer, `sequence` [1, prompt and answer] i64, under the names of transformers' generate():
  /// talker_inputs_embeds, talker_thinker_reply_part, talker_prefill_logits, talker_step_logits, talker_codes [1, codes].
  /// `bare`: as transformers 5.23 begins where a row has no padding, without the codes and places that begin speech.
  Named speak(const Named& inputs, const Tensor& sequence, int64_t codes, bool bare = false);

  void clear_gradients();
  double gradient_norm();
  void update(double learning_rate, double divisor);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Labels that count after the shift by one.
int64_t count_targets(const Tensor& labels);

}  // namespace lockstep
