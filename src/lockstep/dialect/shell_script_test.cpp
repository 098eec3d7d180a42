#include "lockstep/dialect/shell_script.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/stack_command.h"
#include "lockstep/dialect/translate.h"

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

TEST(ShellScript, WhereOutputGoesAndWhatNobodyGaveIsNoWord) {
  const auto words = [](const char* script) {
    std::string all;
    for (const auto& command : shell_commands(script)) all += join(command.words, "|") + "\n";
    return all;
  };
  EXPECT_EQ(words("swift sft --output_dir out > log 2>&1 &"), "swift|sft|--output_dir|out\n");
  EXPECT_EQ(words("a --report_to tensorboard 2>&1 | tee log"), "a|--report_to|tensorboard\ntee|log\n");
  EXPECT_EQ(words("a --x 2 &> 'the log' --y 3 >>\"$LOG\" <rows"), "a|--x|2|--y|3\n");
  EXPECT_EQ(words("a --x '2 > 1' \"$@\" $@"), "a|--x|2 > 1\n");
  EXPECT_EQ(words(R"(a "llm\..*layers\.\d+" "\$x \"y\" \\")"), "a|llm\\..*layers\\.\\d+|$x \"y\" \\\n");
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
  EXPECT_EQ(of("nohup swift sft --model m"), "sft: --model m");
  EXPECT_EQ(of("python -m llamafactory.cli train a.yaml"), "sft: a.yaml");
  EXPECT_EQ(of("conda run -n x llamafactory-cli train a.yaml"), "sft: a.yaml");
  EXPECT_EQ(of("echo swift sft"), ": ");
  EXPECT_EQ(of("deepspeed --include localhost:2,3 train.py --a b"), "sft: --a b on 2");
}

TEST(ShellScript, TakesWhatALauncherSays) {
  const auto found = stack_command(
      shell_commands(
          "env X=1 torchrun --nnodes 2 --node_rank=1 --master_addr h --master_port 9 --nproc_per_node 4 t.py --a b")
          .at(0));
  EXPECT_EQ(found.environment, (std::map<std::string, std::string>{{"MASTER_ADDR", "h"},
                                                                   {"MASTER_PORT", "9"},
                                                                   {"NNODES", "2"},
                                                                   {"NODE_RANK", "1"},
                                                                   {"NPROC_PER_NODE", "4"},
                                                                   {"X", "1"}}));
  const auto two = stack_command(
      shell_commands("time accelerate launch --num_machines 2 --num_processes 8 --main_process_ip h --log_dir l t.py")
          .at(0));
  EXPECT_EQ(two.environment,
            (std::map<std::string, std::string>{{"MASTER_ADDR", "h"}, {"NNODES", "2"}, {"NPROC_PER_NODE", "4"}}));
  EXPECT_EQ(join(two.untaken, "|"), "--log_dir l");
  const auto meeting =
      stack_command(shell_commands("torchrun --rdzv_endpoint=h:29400 --max_restarts 3 t.py --a b").at(0));
  EXPECT_EQ(meeting.environment, (std::map<std::string, std::string>{{"MASTER_ADDR", "h"}, {"MASTER_PORT", "29400"}}));
  EXPECT_EQ(join(meeting.args, " "), "--a b --max_restarts 3");
  const auto accelerate = stack_command(
      shell_commands(
          "accelerate launch --config_file f.yaml --mixed_precision fp16 --use_fsdp --num_machines 1 t.py --a b")
          .at(0));
  EXPECT_EQ(join(accelerate.args, " "), "--a b --accelerate_config f.yaml --fp16 true");
  EXPECT_EQ(join(accelerate.untaken, "|"), "--use_fsdp");
  EXPECT_TRUE(accelerate.environment.empty());
}

TEST(ShellScript, SplitsVariablesIntoWordsAsTheShellDoes) {
  const auto words = [](const std::string& script) {
    const auto found = shell_commands(script);
    return found.empty() ? std::string("none") : join(found.back().words, "|");
  };
  EXPECT_EQ(words("A='--x 4  --y 8'\nrun $A \"$A\" $NOPE"), "run|--x|4|--y|8|--x 4  --y 8|$NOPE");
  EXPECT_EQ(words("A=1\nA+='2 3'\nB=$A\nrun \"$B\""), "run|12 3");
  EXPECT_EQ(words("ARGS=(\n  --a 1  # one\n  \"b c\"\n)\nARGS+=(--d)\nrun \"${ARGS[@]}\" end"),
            "run|--a|1|b c|--d|end");
  EXPECT_EQ(words("BS=2\nrun $((BS*2)) $(( (1 + ${BS}) * 28*28 )) $((1/0)) $((x+1)) $(date +%F)"),
            "run|4|2352|$((1/0))|$((x+1))|$(date +%F)");
  EXPECT_EQ(words("export MAX=$((1280*28*28))\nrun ${MAX} ${X:=7} ${Y:-8}"), "run|1003520|7|8");
  EXPECT_EQ(words("E=\nrun $E x"), "run|x");
  const auto branches = shell_commands("run a\nif [ -z \"$F\" ]; then S=1; else S=5; fi\nrun $S");
  EXPECT_FALSE(branches.front().behind_branches);
  EXPECT_TRUE(branches.back().behind_branches);
  EXPECT_EQ(join(branches.back().words, "|"), "run|5");
}

TEST(ShellScript, WhatIsCutShortHasAnEnd) {
  for (const char* text : {"swift sft '", "a \\", "\"$", "${A", "", "\\", "$", "$((", "$(", "A=(", "A=(b", "${A[@]",
                           "$((9999999999999999999*9))", ")", "A+="})
    (void)shell_commands(text);
}

TEST(ShellScript, WhatGrowsWithoutEndIsRefused) {
  for (const char* line : {"A=$A$A\n", "A+=$A\n", "A=(\"${A[@]}\" \"${A[@]}\")\n", "A=\"$A $A\"\n"}) {
    std::string script = "A=x\nA=(x)\n";
    for (int i = 0; i < 40; ++i) script += line;
    EXPECT_THROW((void)shell_commands(script), UserError) << line;
  }
  std::string open;
  for (int i = 0; i < 200'000; ++i) open += "${$((\"";
  (void)shell_commands(open);  // not in as many seconds as it has brackets
}

TEST(Translate, WordsOfMsSwift2AreToldWhatItDidOtherwise) {
  const auto told = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--sft_type", "lora"});
    return join(translate("sft", words, [](const std::string&) { return true; }).notices(), "\n");
  };
  EXPECT_NE(told({"--model_id_or_path", "m"}).find("1 epoch, 2048 tokens, a warm-up of 0.05: what ms-swift 2"),
            std::string::npos);
  EXPECT_NE(told({"--model_id_or_path", "m", "--max_length", "9", "--warmup_ratio", "0"}).find("1 epoch: what"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep
