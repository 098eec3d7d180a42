#include "lockstep/dialect/shell_script.h"

#include <gtest/gtest.h>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

TEST(ShellScript, ReadsWhatTrainingScriptsAreWrittenIn) {
  const auto found = shell_commands(R"sh(#!/bin/bash
# 2 GPUs
export MAX_PIXELS=1003520
nproc_per_node=2
CUDA_VISIBLE_DEVICES=0,1 \
NPROC_PER_NODE=$nproc_per_node \
swift sft \
    --model Qwen/Qwen2.5-VL-7B-Instruct \
    --dataset 'a b.jsonl#20' "c$nproc_per_node.jsonl" \
    --gradient_accumulation_steps ${GAS:-8} --columns '{"q": "query"}' # the last
echo done; true && swift infer --x $UNKNOWN)sh");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(join(found[0].words, "|"),
            "swift|sft|--model|Qwen/Qwen2.5-VL-7B-Instruct|--dataset|a "
            "b.jsonl#20|c2.jsonl|--gradient_accumulation_steps|8|--columns|"
            "{\"q\": \"query\"}");
  EXPECT_EQ(found[0].environment,
            (std::map<std::string, std::string>{
                {"CUDA_VISIBLE_DEVICES", "0,1"}, {"MAX_PIXELS", "1003520"}, {"NPROC_PER_NODE", "2"}}));
  EXPECT_EQ(join(found[3].words, "|"), "swift|infer|--x|$UNKNOWN");
}

TEST(ShellScript, FindsVerbAndFlagsOfEachLauncher) {
  const auto of = [](const std::string& script) {
    const StackCommand found = stack_command(shell_commands(script).at(0));
    const auto ranks = found.environment.find("NPROC_PER_NODE");
    return found.verb + ": " + join(found.args, " ") + (ranks == found.environment.end() ? "" : " on " + ranks->second);
  };
  EXPECT_EQ(of("swift sft --model m"), "sft: --model m");
  EXPECT_EQ(of("llamafactory-cli train a.yaml learning_rate=1e-5"), "sft: a.yaml learning_rate=1e-5");
  EXPECT_EQ(of("deepspeed llava/train/train_mem.py --bf16 True"), "sft: --bf16 True");
  EXPECT_EQ(of("torchrun --nproc_per_node=8 --master_port 6001 finetune.py --data_path d"), "sft: --data_path d on 8");
  EXPECT_EQ(of("accelerate launch --num_processes 4 swift/cli/sft.py --model m"), "sft: --model m on 4");
  EXPECT_EQ(of("python x/infer.py --model m"), "infer: --model m");
  EXPECT_EQ(of("ls -l"), ": ");
}

TEST(ShellScript, WhatIsCutShortHasAnEnd) {
  for (const char* text : {"swift sft '", "a \\", "\"$", "${A", "", "\\", "$"}) (void)shell_commands(text);
}

}  // namespace
}  // namespace lockstep
