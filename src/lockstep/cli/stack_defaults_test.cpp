// What counts where a command line says nothing is what its own stack computes from the same line.
// Sources: ms-swift 4.6.0 arguments/{sft,tuner,base}_args.py and trainers/arguments.py; transformers 5.23.0 TrainingArguments;
// LLaMA-Factory 0.9.5 hparams; LLaVA train.py; MiniCPM-V finetune.py.
#include <gtest/gtest.h>

#include "lockstep/cli/train_flags.h"

namespace lockstep {
namespace {

struct Expected {
  std::string tuner;
  double rate, decay, beta2, epochs;
  ScheduleKind schedule;
  int64_t batch, accumulation, logging, saving, max_length;
  bool recompute;
  int64_t rank;
  double alpha, dropout;
};

void expect_defaults(const std::vector<std::string>& words, const Expected& expected) {
  const auto flags = parse_sft_flags(words);
  ASSERT_TRUE(flags);
  const FineTuneOptions found = flags->options(Env(std::map<std::string, std::string>{}));
  EXPECT_EQ(found.tuner.type, expected.tuner);
  EXPECT_EQ(found.train.learning_rate, expected.rate);
  EXPECT_EQ(found.train.schedule, expected.schedule);
  EXPECT_EQ(found.train.num_train_epochs, expected.epochs);
  EXPECT_EQ(found.train.warmup_ratio, 0);
  EXPECT_EQ(found.train.max_grad_norm, 1);
  EXPECT_EQ(found.adamw.weight_decay, expected.decay);
  EXPECT_EQ(found.adamw.beta1, 0.9);
  EXPECT_EQ(found.adamw.beta2, expected.beta2);
  EXPECT_EQ(found.adamw.epsilon, 1e-8);
  EXPECT_EQ(found.batch.rows, expected.batch);
  EXPECT_EQ(found.accumulation(2), expected.accumulation);
  EXPECT_EQ(found.train.logging_steps, expected.logging);
  EXPECT_EQ(found.train.save_steps, expected.saving);
  EXPECT_EQ(found.rows.max_length, expected.max_length);
  EXPECT_EQ(found.rows.seed, 42U);
  EXPECT_EQ(found.gradient_checkpointing, expected.recompute);
  EXPECT_EQ(found.split_dataset_ratio, 0);
  if (expected.tuner == "full") return;
  EXPECT_EQ(found.tuner.lora.r, expected.rank);
  EXPECT_EQ(found.tuner.lora.alpha, expected.alpha);
  EXPECT_EQ(found.tuner.lora.dropout, expected.dropout);
}

const Expected kSwift{.tuner = "lora",
                      .rate = 1e-4,
                      .decay = 0.1,
                      .beta2 = 0.95,
                      .epochs = 3,
                      .schedule = ScheduleKind::kCosine,
                      .batch = 1,
                      .accumulation = 8,
                      .logging = 5,
                      .saving = 500,
                      .max_length = 0,
                      .recompute = true,
                      .rank = 8,
                      .alpha = 32,
                      .dropout = 0.05};
const Expected kTrainer{.tuner = "full",
                        .rate = 5e-5,
                        .decay = 0,
                        .beta2 = 0.999,
                        .epochs = 3,
                        .schedule = ScheduleKind::kLinear,
                        .batch = 8,
                        .accumulation = 1,
                        .logging = 500,
                        .saving = 500,
                        .max_length = 0,
                        .recompute = false,
                        .rank = 0,
                        .alpha = 0,
                        .dropout = 0};

TEST(StackDefaults, AreThoseOfEachStack) {
  expect_defaults({"--model", "m", "--dataset", "d"}, kSwift);
  Expected full = kSwift;
  full.tuner = "full";
  full.rate = 1e-5;
  expect_defaults({"--model", "m", "--dataset", "d", "--train_type", "full"}, full);
  expect_defaults({"--model_name_or_path", "m", "--data_path", "d"}, kTrainer);
  Expected factory = kTrainer;
  factory.tuner = "lora";
  factory.max_length = 2048;
  factory.recompute = true;
  factory.rank = 8;
  factory.alpha = 16;
  expect_defaults({"--model_name_or_path", "m", "--stage", "sft", "--dataset", "d"}, factory);
  factory.rank = 4;
  factory.alpha = 8;
  expect_defaults({"--model_name_or_path", "m", "--stage", "sft", "--dataset", "d", "--lora_rank", "4"}, factory);
  Expected llava = kTrainer;
  llava.max_length = 512;
  expect_defaults({"--model_name_or_path", "m", "--data_path", "d", "--mm_projector_type", "mlp2x_gelu"}, llava);
  llava.tuner = "lora_llm";
  llava.rank = 64;
  llava.alpha = 16;
  llava.dropout = 0.05;
  expect_defaults({"--model_name_or_path", "m", "--data_path", "d", "--lora_enable", "True"}, llava);
  Expected minicpm = kTrainer;
  minicpm.max_length = 2048;
  expect_defaults({"--model_name_or_path", "m", "--data_path", "d", "--llm_type", "qwen"}, minicpm);
  minicpm.tuner = "lora";
  minicpm.rank = 64;
  minicpm.alpha = 64;
  minicpm.dropout = 0.05;
  expect_defaults({"--model_name_or_path", "m", "--data_path", "d", "--llm_type", "qwen", "--use_lora", "true"},
                  minicpm);
}

}  // namespace
}  // namespace lockstep
