// What --fsdp and --fsdp_config of other stacks become.
#include <gtest/gtest.h>

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

TEST(FsdpWords, AConfigBesideFsdpSaysWhetherParametersAreKept) {
  EXPECT_EQ(words_of({"--model", "m", "--fsdp", "full_shard", "--fsdp_config", R"({"reshard_after_forward": false})"}),
            "--model m --deepspeed zero2");
  EXPECT_EQ(words_of({"--model", "m", "--fsdp", "no_shard", "--fsdp_config", R"({"reshard_after_forward": true})"}),
            "--model m --deepspeed zero0");
}

}  // namespace
}  // namespace lockstep
