#include "lockstep/dialect/accelerate.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

using Variables = std::map<std::string, std::string>;

std::string words_of(const std::string& yaml, std::vector<std::string> more = {}) {
  const auto path =
      std::filesystem::temp_directory_path() / ("lockstep_accelerate_" + std::to_string(::getpid()) + ".yaml");
  std::ofstream(path) << yaml;
  more.insert(more.end(), {"--accelerate_config", path.string()});
  std::string out;
  try {
    out = join(translate("sft", more, [](const std::string&) { return true; }).words, " ");
  } catch (const UserError& error) {
    out = error.what();
  }
  std::filesystem::remove(path);
  return out;
}

TEST(Accelerate, StagesDtypeAndRanksAreThoseOfTheFile) {
  EXPECT_EQ(
      words_of("distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\nnum_machines: 1\n"
               "deepspeed_config:\n  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: none\n"
               "  gradient_accumulation_steps: 2\n"),
      "--deepspeed "
      "{\"zero_optimization\":{\"stage\":3,\"offload_optimizer\":{\"device\":\"cpu\"}},\"gradient_clipping\":\"auto\"} "
      "--gradient_accumulation_steps 2 --torch_dtype bfloat16 --nproc 4");
  EXPECT_EQ(words_of("distributed_type: FSDP\nmixed_precision: 'no'\nfsdp_config:\n  fsdp_version: 2\n"
                     "  fsdp_reshard_after_forward: false\n  fsdp_activation_checkpointing: true\n"),
            "--deepspeed zero2 --gradient_checkpointing true");
  EXPECT_EQ(words_of("distributed_type: FSDP\nfsdp_config:\n  fsdp_reshard_after_forward: FULL_SHARD\n  "
                     "fsdp_offload_params: true\n"),
            "--deepspeed "
            "{\"zero_optimization\":{\"stage\":3,\"offload_optimizer\":{\"device\":\"cpu\"},\"offload_param\":{"
            "\"device\":\"cpu\"}},\"gradient_clipping\":\"auto\"}");
  EXPECT_EQ(words_of("distributed_type: MULTI_GPU\nnum_processes: 2\n", {"--torch_dtype", "float32"}),
            "--torch_dtype float32 --deepspeed zero0 --nproc 2");
  EXPECT_EQ(words_of("distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"),
            "--deepspeed ds.json");
}

TEST(Accelerate, WhatIsNotBuiltIsRefusedAndFlagsMayNotContradict) {
  EXPECT_NE(words_of("distributed_type: MEGATRON_LM\n").find("MEGATRON_LM is not built"), std::string::npos);
  EXPECT_NE(
      words_of("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n").find("not kept twice"),
      std::string::npos);
  EXPECT_NE(words_of("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: 4}\n").find("not kept twice"),
            std::string::npos);
  EXPECT_NE(words_of("distributed_type: MULTI_GPU\nparallelism_config: {parallelism_config_tp_size: 2}\n")
                .find("parallelism_config_tp_size: one layer's work is not split"),
            std::string::npos);
  EXPECT_NE(words_of("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2}\n", {"--deepspeed", "zero3"})
                .find("contradict"),
            std::string::npos);
  const std::string clips = "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 2, gradient_clipping: 0.5}\n";
  EXPECT_NE(words_of(clips, {"--max_grad_norm", "1"}).find("gradient_clipping is 0.5, and --max_grad_norm 1"),
            std::string::npos);
  EXPECT_EQ(words_of(clips, {"--max_grad_norm", "0.50"}), "--max_grad_norm 0.50 --deepspeed zero2");
}

TEST(Accelerate, ItsLauncherSaysTheSameByVariables) {
  EXPECT_EQ(accelerate_launch_settings(Env(Variables{{"RANK", "0"}})), "");
  EXPECT_EQ(accelerate_launch_settings(Env(Variables{{"ACCELERATE_MIXED_PRECISION", "bf16"}})),
            R"({"mixed_precision":"bf16"})");
  const std::string fsdp = accelerate_launch_settings(Env(Variables{
      {"ACCELERATE_MIXED_PRECISION", "no"}, {"ACCELERATE_USE_FSDP", "true"}, {"FSDP_RESHARD_AFTER_FORWARD", "false"}}));
  EXPECT_EQ(join(translate("sft", {"--accelerate_config", fsdp}, [](const std::string&) { return true; }).words, " "),
            "--deepspeed zero2");
}

}  // namespace
}  // namespace lockstep
