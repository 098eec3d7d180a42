#include "lockstep/watch/tensorboard_sink.h"

#include <gtest/gtest.h>

#include "lockstep/base/json.h"
#include "lockstep/watch/tfrecord.h"

namespace lockstep {
namespace {

std::filesystem::path fresh_folder(const char* name) {
  const auto folder = std::filesystem::path(testing::TempDir()) / "tensorboard_sink" / name;
  std::filesystem::remove_all(folder);
  return folder;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(TensorBoardSink, WritesEveryTagOfAStepAndAnEvaluation) {
  TensorBoardSink sink(fresh_folder("tags") / "runs");
  sink.on(RunStarted{.verb = "sft", .args_json = R"({"seed": 42})"});
  sink.on(StepDone{.step = 10, .loss = 0.5, .token_accuracy = 0.25, .peak_bytes = {1 << 30, 3 << 29}});
  sink.on(EvalDone{.step = 10, .loss = 0.75, .token_accuracy = 0.5, .exact_match = 0.125});
  EXPECT_TRUE(sink.path().filename().string().starts_with("events.out.tfevents."));
  const std::string bytes = read_text(sink.path());
  for (const char* tag : {"train/loss", "train/grad_norm", "train/learning_rate", "train/epoch", "train/token_acc",
                          "train/tokens_per_second", "train/memory_gib", "eval/loss", "eval/token_acc",
                          "eval/exact_match", "\"seed\": 42"}) {
    EXPECT_EQ(count(bytes, tag), 1U) << tag;
  }
}

TEST(TensorBoardSink, WritesTheRatesOfComponents) {
  TensorBoardSink sink(fresh_folder("rates"));
  sink.on(RunStarted{});
  sink.on(StepDone{.step = 1, .component_rates = {{"vision", 1e-5}}});
  EXPECT_EQ(count(read_text(sink.path()), "train/learning_rate_vision"), 1U);
}

TEST(TensorBoardSink, LeavesOutWhatWasNotMeasured) {
  TensorBoardSink sink(fresh_folder("unmeasured"));
  sink.on(RunStarted{});
  sink.on(StepDone{.step = 1});
  sink.on(EvalDone{.step = 1});
  const std::string bytes = read_text(sink.path());
  EXPECT_EQ(count(bytes, "train/loss"), 1U);
  for (const char* tag : {"token_acc", "memory_gib", "exact_match"}) EXPECT_EQ(count(bytes, tag), 0U) << tag;
}

TEST(TensorBoardSink, TellsReadersToForgetStepsAfterTheCheckpointOfAResumedRun) {
  TensorBoardSink sink(fresh_folder("resume"));
  sink.on(RunStarted{.start_step = 7});
  const std::string bytes = read_text(sink.path());
  EXPECT_EQ(count(bytes, std::string("\x10\x08\x3A\x02\x08\x01", 6)), 1U);  // step 8, session_log {status: START}
}

}  // namespace
}  // namespace lockstep
