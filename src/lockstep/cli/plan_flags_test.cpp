#include "lockstep/cli/plan_flags.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/test_refusal.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

std::string said_of(Words words) {
  words.insert(words.begin(), {"--model", "m"});
  return refusal([&] { parse_plan_flags(words); });
}

void expect_refused(const Words& words, const std::string& expected) {
  const std::string said = said_of(words);
  EXPECT_NE(said.find(expected), std::string::npos) << said;
}

TEST(PlanFlags, ContradictionsAreRefusedWithACure) {
  expect_refused({"--nproc", "8", "--world", "4"}, "--world 8, or --nproc 4");
  expect_refused({"--gpus", "4"}, "--device_memory 80GiB beside it");
  expect_refused({"--inference", "--offload", "optimizer"}, "leave one of them out, or --offload params");
  expect_refused({"--device_memory", "80GiB", "--device", "cpu"}, "leave one of them out");
  for (const Words& good : std::vector<Words>{{"--nproc", "4", "--world", "8"},
                                              {"--gpus", "4", "--device_memory", "80GiB"},
                                              {"--gpus", "4", "--device", "cuda"},
                                              {"--inference", "--offload", "params"},
                                              {"--inference", "--deepspeed", "zero3_offload"}}) {
    EXPECT_EQ(said_of(good), "none");
  }
}

TEST(PlanFlags, NumbersThatCanOnlyBeASlipAreRefused) {
  expect_refused({"--batch_size", "1000000000"},
                 "expected a whole number from 1 to 65536, found \"1000000000\"; auto is taken too");
  expect_refused({"--batch_size", "99999999999999999999"}, "expected a whole number from 1 to 65536, found");
  expect_refused({"--batch_size", "0"}, "expected a whole number from 1 to 65536, found");
  expect_refused({"--gradient_accumulation_steps", "1000000000"}, "expected a whole number from 1 to 65536");
  expect_refused({"--memory_limit", "0"}, "--memory_limit 0: expected more than 0 bytes");
  expect_refused({"--device_memory", "0GiB"}, "--device_memory 0GiB: expected more than 0 bytes");
  EXPECT_EQ(said_of({"--batch_size", "auto", "--gradient_accumulation_steps", "65536"}), "none");
  EXPECT_EQ(said_of({"--batch_size", "65536"}), "none");
}

TEST(PlanFlags, CheckpointingIsATruthValueOrAsMemoryNeedsIt) {
  const auto checkpointing = [](const Words& words) {
    Words all{"--model", "m"};
    all.insert(all.end(), words.begin(), words.end());
    const FineTuneOptions found = parse_plan_flags(all)->options(Env()).job;
    return std::pair(found.gradient_checkpointing, found.checkpoint_as_needed);
  };
  EXPECT_EQ(checkpointing({}), std::pair(true, false));
  EXPECT_EQ(checkpointing({"--gradient_checkpointing", "auto"}), std::pair(true, true));
  EXPECT_EQ(checkpointing({"--gradient_checkpointing", "False"}), std::pair(false, false));
  EXPECT_EQ(checkpointing({"--gradient_checkpointing"}), std::pair(true, false));
  expect_refused({"--gradient_checkpointing", "most"}, "expected true, false or auto, found \"most\"");
  expect_refused({"--gradient_checkpointing", "auto", "--device_map", "auto", "--max_memory", "1GiB"},
                 "--memory_limit");
}

TEST(PlanFlags, ASlipInTheWordOfADeviceMapIsMetWithTheNearest) {
  for (const char* word : {"autoo", "Auto", "AUTO"}) expect_refused({"--device_map", word}, "did you mean auto?");
  expect_refused({"--device_map", "autoo", "--max_memory", "1GiB"}, "did you mean auto?");
  EXPECT_EQ(said_of({"--device_map", " {\"\": 0}"}), "none");
}

TEST(PlanFlags, ADeepSpeedFileAndTheFlagsMustAgree) {
  const auto file = [](const std::string& keys) {
    const std::string path = (std::filesystem::path(testing::TempDir()) / "ds_beside_flags.json").string();
    write_text(path, R"({"zero_optimization": {"stage": 2}, )" + keys + "}");
    return path;
  };
  const std::string path =
      file(R"("gradient_accumulation_steps": 4, "bf16": {"enabled": true}, "steps_per_print": 10, "stpes": 1)");
  const Words same = {"--model",      "m",   "--deepspeed", path, "--gradient_accumulation_steps", "4",
                      "--tuner_type", "full"};
  const auto flags = parse_plan_flags(same);
  ASSERT_TRUE(flags);
  EXPECT_EQ(flags->sft.run.torch_dtype, "bfloat16");
  EXPECT_EQ(flags->sft.notices,
            (Words{"--deepspeed " + path + ": bf16.enabled is --torch_dtype bfloat16",
                   "--deepspeed " + path + ": without effect, since there is one way here, or a flag: steps_per_print",
                   "--deepspeed " + path + ": no keys of DeepSpeed, nothing is done about them: stpes"}));
  expect_refused(
      {"--deepspeed", file(R"("gradient_clipping": 0.5, "optimizer": {"type": "AdamW", "params": {"lr": 2e-5}})"),
       "--learning_rate", "1e-5"},
      "gradient_clipping is 0.5, and --max_grad_norm 1; optimizer.params.lr is 2e-05, and --learning_rate 1e-05");
  // What the optimizer leaves out, DeepSpeed has: flags that nobody gave are made that.
  const std::string bare = file(R"("optimizer": {"type": "AdamW", "params": {"lr": "auto", "eps": "auto"}})");
  const auto taken = parse_plan_flags({"--model", "m", "--tuner_type", "full", "--deepspeed", bare});
  EXPECT_EQ(taken->sft.given.adamw.beta2, 0.999);
  EXPECT_EQ(taken->sft.given.adamw.weight_decay, 0);
  EXPECT_EQ(taken->sft.notices, Words{"--deepspeed " + bare +
                                      ": optimizer.params leaves out what no flag says: --adam_beta2 0.999 "
                                      "--weight_decay 0, as DeepSpeed has it there"});
  expect_refused({"--deepspeed", bare, "--weight_decay", "0.1"},
                 "optimizer.params.weight_decay (not given) is 0, and --weight_decay 0.1");
  const auto clipped = parse_plan_flags(
      {"--model", "m", "--tuner_type", "full", "--deepspeed", file("\"wandb\": {}"), "--max_grad_norm", "0.5"});
  EXPECT_EQ(clipped->sft.notices,
            Words{"--deepspeed " + bare +
                  ": gradient_clipping is not there: --max_grad_norm 0.5 counts, where DeepSpeed clips at 1 (before "
                  "0.19.3 not at all)"});
  // Rows of a step: they say how many micro-batches there are, and must be what is asked for beside them.
  const std::string step = file(R"("train_batch_size": 24)");
  const auto options = [&](Words more) {
    more.insert(more.end(), {"--model", "m", "--deepspeed", step, "--per_device_train_batch_size", "3"});
    return parse_plan_flags(more)->sft.options(Env());
  };
  EXPECT_EQ(options({}).accumulation(2), 4);
  EXPECT_NO_THROW(options({}).check_rows_of_step(2));
  EXPECT_NO_THROW(options({"--gradient_accumulation_steps", "2"}).check_rows_of_step(4));
  for (const auto& [more, ranks, found] : std::vector<std::tuple<Words, int, std::string>>{
           {{}, 5, "found 30: --per_device_train_batch_size 3 × 2 micro-batches × 5 ranks"},
           {{"--gradient_accumulation_steps", "3"}, 2, "found 18: --per_device_train_batch_size 3 × 3"}}) {
    try {
      options(more).check_rows_of_step(ranks);
      ADD_FAILURE() << found;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("expected 24 rows a step, " + found), std::string::npos) << error.what();
    }
  }
  expect_refused({"--deepspeed", file(R"("train_batch_size": 2.5)")}, "train_batch_size: expected a whole number");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace lockstep
