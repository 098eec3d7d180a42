#include "lockstep/watch/jsonl_sink.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/watch/log_record.h"

namespace lockstep {
namespace {

std::filesystem::path fresh_path(const char* name) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "jsonl_sink" / name;
  std::filesystem::remove_all(folder);
  return folder / "logging.jsonl";
}

StepDone step_at(int64_t step, double loss) {
  return {.step = step,
          .max_steps = 4,
          .epoch = 0.5,
          .loss = loss,
          .grad_norm = 2,
          .learning_rate = 1e-4,
          .token_accuracy = 0.25,
          .tokens_per_second = 100,
          .seconds_per_step = 0.5,
          .elapsed_seconds = 3723.9,
          .remaining_seconds = 61,
          .tokens_seen = 10,
          .samples_seen = 2,
          .peak_bytes = {1 << 30, 3 << 29},
          .gather_bytes = 7,
          .reduce_bytes = 8};
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  auto lines = split(read_text(path), '\n');
  EXPECT_EQ(lines.back(), "");  // every line is whole
  lines.pop_back();
  return lines;
}

TEST(JsonlSink, KeepsTheRatesOfComponents) {
  StepDone step = step_at(1, 0.5);
  step.component_rates = {{"vision", 1e-5}, {"projector", 2e-4}};
  const Json record = to_record(step);
  EXPECT_EQ(record.at("learning_rate_vision"), 1e-5);
  EXPECT_EQ(record.at("learning_rate_projector"), 2e-4);
  EXPECT_EQ(read_step_record(record)->component_rates, step.component_rates);
}

TEST(JsonlSink, WritesTheKeysOfMsSwiftFirst) {
  const auto path = fresh_path("keys");
  JsonlSink sink(path);
  sink.on(RunStarted{.verb = "sft", .max_steps = 4});
  sink.on(step_at(1, 1.0F / 3.0F));
  sink.on(EvalDone{.step = 1,
                   .num_samples = 10,
                   .loss = 0.5,
                   .token_accuracy = 0.75,
                   .exact_match = 0.5,
                   .seconds = 4,
                   .groups = {{"count", 0.5}},
                   .metrics = {{"perplexity", 1.5}, {"my_metric.f1", 0.25}},
                   .epoch = 0.75});
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(
      lines[0],
      R"J({"loss":0.333333343,"grad_norm":2.0,"learning_rate":0.0001,"token_acc":0.25,"epoch":0.5,)J"
      R"J("global_step/max_steps":"1/4","elapsed_time":"1h 2m 3s","remaining_time":"1m 1s","memory(GiB)":1.5,)J"
      R"J("train_speed(s/it)":0.5,"cpu_seconds_per_step":0.0,"tokens_per_second":100.0,"elapsed_seconds":3723.9,)J"
      R"J("remaining_seconds":61.0,)J"
      R"J("peak_bytes":[1073741824,1610612736],"tokens_seen":10,"samples_seen":2,"gather_wait_seconds":0.0,)J"
      R"J("reduce_wait_seconds":0.0,"gather_bytes":7,"reduce_bytes":8})J");
  EXPECT_EQ(lines[1], R"J({"eval_loss":0.5,"eval_token_acc":0.75,"eval_exact_match":0.5,"eval_perplexity":1.5,)J"
                      R"J("eval_my_metric.f1":0.25,"eval_runtime":4.0,)J"
                      R"J("eval_samples_per_second":2.5,"eval_samples":10,"eval_groups":{"count":0.5},"epoch":0.75,)J"
                      R"J("global_step/max_steps":"1/4"})J");
}

TEST(JsonlSink, EndsWithTheSummaryAndTheFinalRecord) {
  const auto path = fresh_path("end");
  JsonlSink sink(path);
  sink.on(RunStarted{
      .verb = "sft", .model_family = "llava", .max_steps = 4, .num_params = 960, .num_trainable_params = 900});
  sink.on(step_at(2, 0.5));
  sink.on(EvalDone{.step = 2, .loss = 0.25});
  sink.on(CheckpointSaved{.step = 2, .path = "out/checkpoint-2"});
  sink.on(EvalDone{.step = 4, .loss = 0.75});
  sink.on(CheckpointSaved{.step = 4, .path = "out/checkpoint-4"});
  sink.on(RunEnded{
      .outcome = "done", .seconds = 8, .train_loss = 0.5, .samples_per_second = 2, .steps_per_second = 0.5, .step = 4});
  const auto lines = lines_of(path);
  ASSERT_EQ(lines.size(), 5U);
  EXPECT_EQ(lines[3],
            R"J({"train_runtime":8.0,"train_samples_per_second":2.0,"train_steps_per_second":0.5,"train_loss":0.5,)J"
            R"J("epoch":0.5,"global_step/max_steps":"4/4","elapsed_time":"8s"})J");
  const Json last = Json::parse(lines[4]);
  EXPECT_EQ(last["model_parameter_info"], "llava: 960 Params (900 Trainable)");
  EXPECT_EQ(last["last_model_checkpoint"], "out/checkpoint-4");
  EXPECT_EQ(last["best_model_checkpoint"], "out/checkpoint-2");
  EXPECT_EQ(last["best_metric"], 0.25);
  EXPECT_EQ(last["log_history"].size(), 3U);
  EXPECT_EQ(last["memory"], 1.5);
}

TEST(JsonlSink, CutsLaterStepsTheEndAndABrokenLineWhenARunResumes) {
  const auto path = fresh_path("resume");
  {
    JsonlSink sink(path);
    sink.on(RunStarted{.verb = "sft", .max_steps = 4});
    for (int64_t step = 1; step <= 3; ++step) sink.on(step_at(step, static_cast<double>(step)));
    sink.on(RunEnded{.outcome = "interrupted", .step = 3});
  }
  std::ofstream(path, std::ios::app) << R"({"loss":1.0,"global_st)";
  JsonlSink sink(path);
  sink.on(RunStarted{.verb = "sft", .start_step = 2, .max_steps = 4});
  sink.on(step_at(3, 30));
  std::vector<double> losses;
  for (const auto& line : lines_of(path)) losses.push_back(Json::parse(line)["loss"].get<double>());
  EXPECT_EQ(losses, (std::vector<double>{1, 2, 30}));
}

TEST(JsonlSink, BeginsAnewForAFreshRunAndAppendsForOtherVerbs) {
  const auto path = fresh_path("fresh");
  for (const char* verb : {"sft", "sft", "eval"}) {
    JsonlSink sink(path);
    sink.on(RunStarted{.verb = verb});
    sink.on(EvalDone{.loss = 1});
  }
  EXPECT_EQ(lines_of(path).size(), 2U);
}

TEST(LogRecord, ReadsBackWhatItWrote) {
  StepDone step = step_at(3, 0.125);
  step.predicted_bytes = {5, 6};
  step.loss_scale = 1024;
  step.gather_wait_seconds = 0.25;
  const auto again = read_step_record(to_record(step));
  ASSERT_TRUE(again);
  EXPECT_EQ(to_record(*again), to_record(step));
  const EvalDone eval{.step = 3,
                      .num_samples = 4,
                      .loss = 0.5,
                      .exact_match = 0.25,
                      .seconds = 1,
                      .groups = {{"a", 1}},
                      .metrics = {{"anls", 0.5}}};
  const auto eval_again = read_eval_record(to_record(eval, 4));
  ASSERT_TRUE(eval_again);
  EXPECT_EQ(to_record(*eval_again, 4), to_record(eval, 4));
  EXPECT_FALSE(read_eval_record(to_record(step)));
}

TEST(LogRecord, KeepsALossThatIsNotFiniteAsSuch) {
  StepDone step = step_at(1, std::nan(""));
  const auto again = read_step_record(Json::parse(to_record(step).dump()));
  ASSERT_TRUE(again);
  EXPECT_TRUE(std::isnan(again->loss));
}

TEST(LogRecord, PrintsDurationsAsMsSwiftDoes) {
  EXPECT_EQ(swift_duration(0.9), "0s");
  EXPECT_EQ(swift_duration(60), "1m 0s");
  EXPECT_EQ(swift_duration(3600), "1h 0m 0s");
  EXPECT_EQ(swift_duration(90061), "1d 1h 1m 1s");
}

}  // namespace
}  // namespace lockstep
