#include "lockstep/watch/logger_sink.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Notices final : public EventSink {
 public:
  void on(const Event& event) override {
    if (const auto* notice = std::get_if<Notice>(&event)) text += notice->text + "\n";
  }
  /// Without what the sink says of it, as of one that takes long to start.
  std::string of_the_logger() const {
    std::istringstream lines(text);
    std::string kept;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("--report_to")) kept += line + "\n";
    }
    return kept;
  }
  std::string text;
};

class Loggers : public InTestFolder {
 protected:
  Loggers() {
    std::signal(SIGPIPE, SIG_IGN);  // as main does
    bus_.add(notices_);
  }

  Program shell(const std::string& body) const {
    return logger_program(shell_script("logger.sh", body), "/usr/bin:/bin");
  }
  std::string complaint(const std::string& body) const {
    try {
      const LoggerSink logger(shell(body), {}, bus_);
    } catch (const UserError& error) {
      return error.message();
    }
    return "no error";
  }
  std::vector<Json> lines() const {
    std::ifstream file(folder_ / "lines");
    std::vector<Json> out;
    for (std::string line; std::getline(file, line);) out.push_back(parse_json(line, "a line"));
    return out;
  }

  static RunStarted started() {
    RunStarted run;
    run.verb = "sft";
    run.output_dir = "out";
    run.args_json = R"({"seed": 3})";
    return run;
  }
  static StepDone step(int64_t number, double loss) {
    StepDone done;
    done.step = number;
    done.loss = loss;
    return done;
  }
  static RunEnded ended(int exit_code = 0) {
    RunEnded run;
    run.outcome = "done";
    run.exit_code = exit_code;
    return run;
  }

  Notices notices_;
  EventBus bus_;
};

TEST_F(Loggers, GetTheCurvesOfARun) {
  LoggerSink logger(shell("echo ready; echo hello there; cat > " + (folder_ / "lines").string()),
                    {.name = "one", .project = "many", .settings = {{"swanlab_mode", "offline"}}}, bus_);
  logger.on(started());
  logger.on(step(5, 2.5));
  logger.on(step(6, std::nan("")));
  EvalDone eval;
  eval.step = 6;
  eval.loss = 1.5;
  eval.metrics = {{"rouge_l", 0.25}};
  logger.on(eval);
  logger.on(ended());
  const auto got = lines();
  ASSERT_EQ(got.size(), 5U);
  EXPECT_EQ(got[0].at("event"), "begin");
  EXPECT_EQ(got[0].at("name"), "one");
  EXPECT_EQ(got[0].at("project"), "many");
  EXPECT_EQ(got[0].at("settings").at("swanlab_mode"), "offline");
  EXPECT_EQ(got[0].at("args").at("seed"), 3);
  EXPECT_EQ(got[1].at("step"), 5);
  EXPECT_EQ(got[1].at("values").at("train/loss"), 2.5);
  EXPECT_TRUE(got[2].at("values").at("train/loss").is_null());
  EXPECT_EQ(got[3].at("values").at("eval/rouge_l"), 0.25);
  EXPECT_EQ(got[4].at("event"), "end");
  EXPECT_EQ(got[4].at("exit_code"), 0);
  EXPECT_EQ(notices_.of_the_logger(), "hello there\n");
}

TEST_F(Loggers, ThatCannotBeginAreAnErrorWithTheirWords) {
  EXPECT_NE(complaint("echo 'no such package' >&2; exit 3").find("it has ended with code 3\n    no such package"),
            std::string::npos);
  EXPECT_NE(complaint("echo hello; cat").find("expected \"ready\" as its first line, found \"hello\""),
            std::string::npos);
  EXPECT_THROW(logger_program("wandb", "/nowhere"), UserError) << "no Python";
  EXPECT_THROW(logger_program("./none.py", "/nowhere"), UserError);
}

TEST_F(Loggers, ThatEndTooSoonAreToldOnce) {
  LoggerSink logger(shell("echo ready; read line; echo 'disk full' >&2; exit 7"), {}, bus_);
  logger.on(started());
  for (int i = 0; i < 300 || (i < 30'000 && notices_.text.find("has ended") == std::string::npos); ++i) {
    logger.on(step(i, 1));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  logger.on(ended());
  EXPECT_NE(notices_.text.find("has ended with code 7 while the run goes on; logging.jsonl holds all\n    disk full"),
            std::string::npos)
      << notices_.text;
  EXPECT_EQ(notices_.text.find("has ended", notices_.text.find("has ended") + 1), std::string::npos) << notices_.text;
}

/// One that reads nothing: what a pipe holds is soon full.
TEST_F(Loggers, NeverHoldUpARun) {
  LoggerSink logger(shell("echo ready; exec sleep 60"), {}, bus_);
  logger.on(started());
  for (int i = 0; i < 3000; ++i) logger.on(step(i, 1));
  const auto begun = Clock::now();
  logger.on(ended(/*exit_code=*/1));
  EXPECT_LT(seconds_since(begun), 30);
  EXPECT_NE(notices_.text.find("has not come to its end in time and was ended"), std::string::npos) << notices_.text;
}

TEST_F(Loggers, AreGivenUpWhenTheyTakeNothing) {
  LoggerSink logger(shell("echo ready; exec sleep 60"), {}, bus_);
  RunStarted run = started();
  run.args_json = R"({"much": ")" + std::string(17 << 20, 'x') + "\"}";
  logger.on(run);
  logger.on(step(1, 1));
  EXPECT_NE(notices_.text.find("takes nothing any more and was ended"), std::string::npos) << notices_.text;
}

TEST_F(Loggers, ThatEndBadlyAreTold) {
  LoggerSink logger(shell("echo ready; cat > /dev/null; echo 'no network' >&2; exit 1"), {}, bus_);
  logger.on(started());
  logger.on(ended());
  EXPECT_NE(notices_.text.find("has ended with code 1; logging.jsonl holds all\n    no network"), std::string::npos)
      << notices_.text;
}

}  // namespace
}  // namespace lockstep
