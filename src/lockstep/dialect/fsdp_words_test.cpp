// What --fsdp and --fsdp_config of other stacks become.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

std::string words_of(const std::vector<std::string>& args) {
  return join(translate("sft", args, [](const std::string& name) { return !name.starts_with("fsdp"); }).words, " ");
}

TEST(FsdpWords, WhatFsdpSaysOfActivationsCountsBesideAFlagThatIsFalse) {
  EXPECT_EQ(words_of({"--model", "m", "--gradient_checkpointing", "false", "--fsdp", "fsdp2"}),
            "--model m --deepspeed zero3 --gradient_checkpointing true");
  EXPECT_EQ(words_of({"--model", "m", "--gradient_checkpointing", "false", "--fsdp", "full_shard"}),
            "--model m --gradient_checkpointing false --deepspeed zero3");
  EXPECT_EQ(words_of({"--model", "m", "--fsdp", "full_shard auto_wrap", "--fsdp_config",
                      "{'activation_checkpointing': True}"}),
            "--model m --deepspeed zero3 --gradient_checkpointing true");
}

TEST(FsdpWords, FsdpAloneIsFsdp) {
  EXPECT_EQ(words_of({"--model", "m", "--fsdp_config", "{'cpu_offload': True}", "--fsdp"}),
            "--model m --deepspeed zero3_offload");
  EXPECT_EQ(words_of({"--model", "m", "--fsdp", ""}), "--model m");
}

TEST(FsdpWords, AConfigOffloadsAndItsKeysThatNobodyReadsAreNamed) {
  for (const char* key : {"cpu_offload", "fsdp_cpu_offload", "offload_params", "fsdp_offload_params"}) {
    const std::string config = std::string("{'") + key + "': True}";
    EXPECT_EQ(words_of({"--model", "m", "--fsdp", "full_shard", "--fsdp_config", config}),
              "--model m --deepspeed zero3_offload");
  }
  const auto refused = [](const std::string& words, const std::string& config) {
    try {
      return words_of({"--model", "m", "--fsdp", words, "--fsdp_config", config});
    } catch (const UserError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_NE(refused("full_shard", R"({"reshard_after_forward": "hybrid_shard"})").find("not kept twice"),
            std::string::npos);
  EXPECT_NE(refused("no_shard", R"({"cpu_offload": true})").find("offloaded by a flag of its own"), std::string::npos);
  EXPECT_EQ(refused("auto_wrap", R"({"reshard_after_forward": "shard_grad_op"})"), "--model m --deepspeed zero2");
  const auto told = translate(
      "sft", {"--model", "m", "--fsdp", "true", "--fsdp_config", R"({"version": 2, "limit_all_gathers": true})"},
      [](const std::string& name) { return !name.starts_with("fsdp"); });
  EXPECT_NE(join(told.notices(), "\n").find("done in one way here: limit_all_gathers"), std::string::npos)
      << join(told.notices(), "\n");
}

TEST(FsdpWords, AConfigBesideFsdpSaysWhetherParametersAreKept) {
  EXPECT_EQ(words_of({"--model", "m", "--fsdp", "full_shard", "--fsdp_config", R"({"reshard_after_forward": false})"}),
            "--model m --deepspeed zero2");
  EXPECT_EQ(words_of({"--model", "m", "--fsdp", "no_shard", "--fsdp_config", R"({"reshard_after_forward": true})"}),
            "--model m --deepspeed zero0");
}

}  // namespace
}  // namespace lockstep
