#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/plan/zero.h"

namespace lockstep {
namespace {

using Keys = std::vector<std::string>;

DeepSpeedChoice choice_of(const std::string& text) { return DeepSpeedChoice::from_flag(text); }

std::string refusal_of(const std::string& text) {
  try {
    (void)choice_of(text);
  } catch (const UserError& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  return "taken";
}

TEST(DeepSpeedFile, EachKeyIsUsedSaidByAFlagWithoutEffectOrNobodys) {
  const DeepSpeedChoice found = choice_of(R"({
      "_comment": "of one's own", "train_micro_batch_size_per_gpu": 2, "train_batch_size": "auto", "bf16": {"enabled": true},
      "fp16": {"enabled": "auto", "loss_scale": 0}, "gradient_clipping": 1.0, "prescale_gradients": false,
      "amp": {"enabled": false}, "steps_per_print": 10, "monitor_config": {"tensorboard": {"enabled": true}}, "madeup": 3,
      "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95], "eps": "auto"}},
      "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 100, "warmup_min_lr": "auto", "warmup_type": "linear"}},
      "zero_optimization": {"stage": 3, "overlap_comm": true, "reduce_bucket_size": 5e8, "zero_hpz_partition_size": 1,
                            "zero_quantized_weights": false, "offload_param": {"device": "none", "pin_memory": true}}})");
  EXPECT_EQ(found.zero.stage, 3);
  EXPECT_FALSE(found.offload_params);
  EXPECT_TRUE(found.decays_all) << "transformers gives DeepSpeed's own optimizer one group";
  EXPECT_FALSE(choice_of(R"({"zero_optimization": {"stage": 3}})").decays_all);
  Keys said;
  for (const auto& one : found.says) said.push_back(one.key + " " + one.flag + " " + one.value);
  EXPECT_EQ(said, (Keys{"train_micro_batch_size_per_gpu --per_device_train_batch_size 2",
                        "bf16.enabled --torch_dtype bfloat16", "gradient_clipping --max_grad_norm 1.0",
                        "optimizer.params.lr --learning_rate 1e-05", "optimizer.params.betas[0] --adam_beta1 0.9",
                        "optimizer.params.betas[1] --adam_beta2 0.95",
                        "optimizer.params.weight_decay (not given) --weight_decay 0",
                        "scheduler.params.total_num_steps --max_steps 100",
                        "scheduler.params.warmup_num_steps (not given) --warmup_steps 1000",
                        "scheduler.params.warmup_max_lr (not given) --learning_rate 0.001",
                        "scheduler.type --lr_scheduler_type WarmupDecayLR",
                        "scheduler.params --lr_scheduler_kwargs {\"warmup_type\":\"linear\"}"}));
  EXPECT_EQ(found.ignored, (Keys{"zero_optimization.overlap_comm", "zero_optimization.reduce_bucket_size",
                                 "zero_optimization.zero_hpz_partition_size", "steps_per_print", "monitor_config"}));
  EXPECT_EQ(found.unknown, Keys{"madeup"});
}

TEST(DeepSpeedFile, SaysHowNumbersOf16BitsAreUsed) {
  EXPECT_EQ(choice_of(R"({"fp16": {"enabled": "auto", "loss_scale": 0, "hysteresis": 2}})").loss_scaling,
            LossScaling{});
  const DeepSpeedChoice found = choice_of(R"({
      "fp16": {"enabled": true, "auto_cast": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 100,
               "hysteresis": 3, "min_loss_scale": 4, "consecutive_hysteresis": true},
      "gradient_allreduce_op": "mean", "optimizer": {"type": "AdamW", "params": {"bias_correction": true}}})");
  EXPECT_EQ(found.loss_scaling,
            (LossScaling{.initial = 4096, .least = 4, .window = 100, .hysteresis = 3, .refills = true}));
  EXPECT_EQ(found.ignored, (Keys{"fp16.auto_cast", "gradient_allreduce_op"}));
  EXPECT_EQ(found.says.at(0).value, "float16");
  EXPECT_EQ(choice_of(R"({"fp16": {"loss_scale": 128}})").loss_scaling.fixed, 128);
  EXPECT_EQ(choice_of(R"({"fp16": {"enabled": false, "hysteresis": 0, "min_loss_scale": 0}})").loss_scaling,
            LossScaling{})
      << "of what is off nothing is asked";
  const DeepSpeedChoice cast = choice_of(R"({"torch_autocast": {"enabled": true, "dtype": "torch.bfloat16"}})");
  EXPECT_EQ(cast.says.at(0).key + " " + cast.says.at(0).flag + " " + cast.says.at(0).value,
            "torch_autocast.enabled --torch_dtype bfloat16");
  EXPECT_TRUE(choice_of(R"({"torch_autocast": {"enabled": false}})").says.empty());
}

TEST(DeepSpeedFile, WhatItsOptimizerLeavesOutIsDeepSpeedsDefault) {
  const auto defaults = [](const std::string& type, const std::string& params) {
    Keys all;
    for (const auto& one : choice_of(R"({"optimizer": {"type": ")" + type + R"(", "params": )" + params + "}}").says) {
      if (one.by_default) all.push_back(one.flag + " " + one.value);
    }
    return all;
  };
  EXPECT_EQ(defaults("AdamW", "{}"), (Keys{"--learning_rate 0.001", "--adam_beta1 0.9", "--adam_beta2 0.999",
                                           "--adam_epsilon 1e-08", "--weight_decay 0"}));
  const std::string but_decay = R"("lr": "auto", "betas": [0.9, 0.95], "eps": 1e-8)";
  EXPECT_EQ(defaults("AdamW", "{" + but_decay + R"(, "torch_adam": true})"), Keys{"--weight_decay 0.01"});
  EXPECT_EQ(defaults("Adam", "{" + but_decay + R"(, "torch_adam": true, "adam_w_mode": false})"),
            Keys{"--weight_decay 0"});
  EXPECT_EQ(defaults("AdamW", "{" + but_decay + R"(, "weight_decay": "auto"})"), Keys{});
}

TEST(DeepSpeedFile, WhatIsNotBuiltIsRefusedByName) {
  const auto zero = [](const std::string& keys) { return R"({"zero_optimization": {"stage": 3, )" + keys + "}}"; };
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {zero(R"("zero_hpz_partition_size": 8)"), "zero_optimization.zero_hpz_partition_size"},
           {zero(R"("zero_quantized_weights": true)"), "--quant_bits 4"},
           {zero(R"("zero_quantized_gradients": true)"), "communication_data_type"},
           {zero(R"("offload_optimizer": {"device": "cpu", "ratio": 0.3})"), "offload_optimizer.ratio"},
           {zero(R"("offload_param": {"device": "nvme"})"), "nothing is offloaded to files"},
           {R"({"tensor_parallel": {"autotp_size": 2}})", "tensor_parallel"},
           {R"({"tensor_parallel": 5})", "tensor_parallel"},
           {R"({"optimizer": {"type": "OneBitAdam"}})", "AdamW is the one optimizer"},
           {R"({"optimizer": {"type": "adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})",
            "optimizer.params.adam_w_mode: expected true"},
           {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})",
            "optimizer.params.adam_w_mode: expected true"},
           {R"({"optimizer": {"type": "AdamW", "params": {"bias_correction": false}}})",
            "optimizer.params.bias_correction: expected true"},
           {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op: is not built, found \"sum\""},
           {zero(R"("zenflow": {"topk_ratio": 0.05})"), "zero_optimization.zenflow: is not built"},
           {R"({"torch_autocast": {"enabled": true}})",
            "torch_autocast.dtype: expected \"bfloat16\" or \"float16\", found none"},
           {R"({"torch_autocast": {"enabled": true, "dtype": "float32"}})", "found float32"},
           {R"({"fp16": {"loss_scale_window": 0}})", "fp16.loss_scale_window: expected a number from 1"},
           {R"({"fp16": {"hysteresis": 1.5}})", "fp16.hysteresis: expected a whole number, found 1.5"},
           {R"({"fp16": {"loss_scale": true}})", "fp16.loss_scale: expected a number from 0"},
           {R"({"scheduler": {"type": "OneCycle"}})", "--lr_scheduler_type says it"},
           {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto"}}})", "total_num_steps"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 9}}})", "takes no such parameter"},
           {R"({"fsdp": "full_shard"})", "--fsdp"},
           {R"({"zero_optimization": {"stage": 2.5}})", "expected 0, 1, 2 or 3"},
           {R"({"gradient_clipping": "much"})", "expected a number or \"auto\""}}) {
    EXPECT_NE(refusal_of(text).find(word), std::string::npos) << text << "\n" << refusal_of(text);
  }
  EXPECT_EQ(refusal_of(R"({"tensor_parallel": {"autotp_size": 1}})"), "taken");
  EXPECT_EQ(refusal_of(R"({"optimizer": {"type": "adamw", "params": {"lr": "auto"}}})"), "taken");
  EXPECT_EQ(refusal_of(R"({"optimizer": {"type": "AdamW", "params": {"adam_w_mode": false, "weight_decay": 0.1}}})"),
            "taken");
}

}  // namespace
}  // namespace lockstep
