#include "lockstep/tasks/fine_tune_options.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// A run of 40 steps that is evaluated and wishes for its best checkpoint.
FineTuneOptions of_the_best(StepParts parts, int64_t save_steps, int64_t eval_steps) {
  FineTuneOptions options;
  options.val_dataset = {"val.jsonl"};
  options.load_best_model_at_end = true;
  options.train.max_steps = 40;
  options.train.save_steps = save_steps;
  options.eval_steps = eval_steps;
  options.step_parts = parts;
  return options;
}

std::string refused(const std::function<void()>& act) {
  try {
    act();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(FineTuneOptions, TheBestEvaluationMustBeSavedWhenPartsHaveBecomeSteps) {
  const auto of = [](const FineTuneOptions& options) {
    return refused([&] {
      options.check();
      (void)options.train_options(/*world=*/1, /*batches_per_epoch=*/100, /*evaluates=*/true);
    });
  };
  EXPECT_NE(
      of(of_the_best({.eval = 0.15}, 20, 1)).find("--save_steps 20 is no multiple of --eval_steps 6 (0.15 of all"),
      std::string::npos);
  EXPECT_NE(of(of_the_best({.save = 0.5, .eval = 0.2}, 1, 1)).find("--save_steps 20 (0.5 of all steps) is no"),
            std::string::npos);
  EXPECT_EQ(of(of_the_best({.save = 0.5}, 1, 5)), "") << "the step that stands for a part is no number of steps";
  EXPECT_EQ(of(of_the_best({.save = 0.5, .eval = 0.25}, 1, 1)), "");
  EXPECT_NE(of(of_the_best({}, 4, 3)).find("--save_steps 4 is no multiple of --eval_steps 3"), std::string::npos);
  EXPECT_EQ(of(of_the_best({}, 6, 3)), "");
}

TEST(FineTuneOptions, WhatIsSavedWhereItIsTheBestNeedsEvaluations) {
  FineTuneOptions options;
  options.save_strategy = "best";
  const auto said = [&] { return refused([&] { options.check(); }); };
  EXPECT_NE(said().find("--save_strategy best: nothing is evaluated"), std::string::npos) << said();
  options.val_dataset = {"val.jsonl"};
  options.load_best_model_at_end = true;
  EXPECT_EQ(said(), "");
  const TrainOptions train = options.train_options(/*world=*/1, /*batches_per_epoch=*/100, /*evaluates=*/true);
  EXPECT_TRUE(train.save_best && !train.save_at_end && train.eval_at_end);
  EXPECT_EQ(train.save_steps, 0);
  EXPECT_EQ(train.eval_steps, 500);
  options.train.early_stop_interval = 2;
  EXPECT_NE(said().find("--early_stop_interval: it counts checkpoints"), std::string::npos) << said();
}

TEST(FineTuneOptions, AMetricThatIsNeverMeasuredIsRefusedAtOnce) {
  FineTuneOptions options;
  options.predict_with_generate = true;
  const auto judged_by = [&](const char* name) {
    options.metric_for_best_model = name;
    return refused([&] { options.check(); });
  };
  EXPECT_NE(judged_by("rougeX").find("--metric_for_best_model rougeX: an evaluation measures loss, token_acc,"),
            std::string::npos);
  for (const char* name : {"rouge-l", "eval_rouge_l", "loss", "perplexity", "token_accuracy"}) {
    EXPECT_EQ(judged_by(name), "");
  }
  options.metric.metrics = "exact_match";
  EXPECT_NE(judged_by("rouge_l").find("exact_match, by --metrics exact_match"), std::string::npos);
  EXPECT_EQ(judged_by("exact_match"), "");
  options.metric.programs = {"./mine.py"};
  EXPECT_EQ(judged_by("mine"), "") << "what a program measures is known when it has run";
  options = {};
  EXPECT_NE(judged_by("rouge_l").find("is measured on answers, and none are generated"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
