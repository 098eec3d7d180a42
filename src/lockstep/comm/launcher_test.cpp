// Real child processes: small shell scripts in place of the program.
#include "lockstep/comm/launcher.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/env.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/base/worker.h"
#include "lockstep/testing/part.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

int launch(const std::string& script, int processes, int grace = 5, const Env& env = Env::process()) {
  return launch_ranks(shell(script), env, {.num_processes = processes, .grace_seconds = grace});
}

class LauncherTest : public InTestFolder {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  bool wait_for(const std::string& name) const {
    for (int i = 0; i < 1000 && !std::filesystem::exists(path(name)); ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    return std::filesystem::exists(path(name));
  }
  /// A launcher in a process of its own; `how`: what Part.Launcher makes of the signal that it gets.
  pid_t start_launcher(const std::string& script, int grace = 5, const std::string& how = "code") const {
    return start_part("Part.Launcher", {{"SCRIPT", script}, {"GRACE", std::to_string(grace)}, {"HOW", how}});
  }
};

/// Not a test: what start_launcher starts.
TEST(Part, Launcher) {
  const auto script = part_variable("SCRIPT");
  if (!script) return;
  const int grace = std::stoi(*part_variable("GRACE"));
  bool interrupted = false;
  const int code = launch_ranks(shell(*script), Env::process(),
                                {.num_processes = 2, .grace_seconds = grace, .interrupted = &interrupted});
  ::_exit(part_variable("HOW") == "interrupted" ? (code == 0 && interrupted ? 7 : 1) : code);
}

/// Not a test: its ranks are copies where it has one thread, and started where it has two.
TEST(Part, LauncherOfCopies) {
  const auto folder = part_variable("FOLDER");
  if (!folder) return;
  const pid_t here = ::getpid();
  LaunchOptions options{.num_processes = 2};
  options.run_here = [&](const std::vector<std::string>& argv) {
    const Env env = Env::process();
    std::ofstream(*folder + "/" + *env.text("RANK")) << (::getppid() == here ? "copy " : "? ") << argv.back() << ' '
                                                     << at::get_num_threads() << ' ' << env.text("LEFT").value_or("-");
    return *env.text("RANK") == "1" ? 9 : 0;
  };
  const Env env({{"PATH", "/usr/bin:/bin"}, {"OMP_NUM_THREADS", "3"}});
  std::optional<Worker> other;
  if (part_variable("HOW") == "threads") {
    other.emplace("other", [](const std::stop_token& stop) {
      while (!stop.stop_requested()) std::this_thread::sleep_for(milliseconds(1));
    });
  }
  ::setenv("LEFT", "behind", 1);
  ::_exit(launch_ranks(shell("echo started > " + *folder + "/$RANK"), env, options));
}

TEST_F(LauncherTest, CopiesItselfWhereItHasOneThread) {
  const auto code_of = [&](const std::string& how) {
    int status = 0;
    ::waitpid(start_part("Part.LauncherOfCopies", {{"FOLDER", folder_.string()}, {"HOW", how}}), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string script = "echo started > " + folder_.string() + "/$RANK";
#if !defined(__SANITIZE_THREAD__)  // which has a thread of its own everywhere
  EXPECT_EQ(code_of("alone"), 9);
  EXPECT_EQ(read("0"), "copy " + script + " 3 -");
  EXPECT_EQ(read("1"), "copy " + script + " 3 -");
#endif
  EXPECT_EQ(code_of("threads"), 0);
  EXPECT_EQ(read("1"), "started\n");
}

TEST_F(LauncherTest, GivesEachRankItsPlace) {
  EXPECT_EQ(launch("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $LOCKSTEP_LAUNCHED "
                   "$OMP_NUM_THREADS > " +
                       folder_.string() + "/$RANK; echo $MASTER_PORT > " + folder_.string() + "/port$RANK",
                   3, 5, Env({{"PATH", "/usr/bin:/bin"}, {"OMP_NUM_THREADS", "7"}})),
            0);
  EXPECT_EQ(read("0"), "0 0 3 3 127.0.0.1 1 7\n");
  EXPECT_EQ(read("2"), "2 2 3 3 127.0.0.1 1 7\n");
  EXPECT_EQ(read("port0"), read("port2"));
  EXPECT_GT(std::stoi(read("port0")), 1023);
}

TEST_F(LauncherTest, CountsRanksOverNodes) {
  const Env env({{"PATH", "/usr/bin:/bin"},
                 {"RANK", "1"},
                 {"WORLD_SIZE", "2"},
                 {"NPROC_PER_NODE", "2"},
                 {"MASTER_ADDR", "pod-0"},
                 {"MASTER_PORT", "4000"}});
  EXPECT_EQ(
      launch("echo $RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT > " + folder_.string() + "/$LOCAL_RANK", 2,
             5, env),
      0);
  EXPECT_EQ(read("0"), "2 4 1 pod-0 4000\n");
  EXPECT_EQ(read("1"), "3 4 1 pod-0 4000\n");
}

TEST_F(LauncherTest, TheFirstFailureDecidesAndEndsTheOthers) {
  const auto start = Clock::now();
  EXPECT_EQ(launch("if [ $RANK = 1 ]; then exit 7; fi; exec sleep 60", 3), 7);
  EXPECT_LT(seconds_since(start), 30);
  EXPECT_EQ(launch("if [ $RANK = 0 ]; then kill -KILL $$; fi; exec sleep 60", 2), 128 + SIGKILL);
}

TEST_F(LauncherTest, ARankThatIgnoresRequestsIsKilledWithItsChildren) {
  const auto start = Clock::now();
  EXPECT_EQ(launch("if [ $RANK = 1 ]; then while [ ! -s " + path("child") +
                       " ]; do sleep 0.05; done; exit 3; fi; trap '' TERM; sleep 50 & echo $! > " + path("child") +
                       "; while :; do sleep 0.1; done",
                   2, 1),
            3);
  EXPECT_NE(::kill(std::stoi(read("child")), 0), 0);
  EXPECT_LT(seconds_since(start), 30);
}

TEST_F(LauncherTest, AnUnknownProgramIsExitCode127) {
  EXPECT_EQ(launch_ranks({"/nowhere/lockstep"}, Env::process(), {.num_processes = 2}), 127);
}

TEST_F(LauncherTest, OtherRanksLinesCarryTheirNameAndLoseNothing) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch("echo one from $RANK; printf 'no end %s' $RANK; echo error $RANK >&2", 2), 0);
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_NE(out.find("one from 0\n"), std::string::npos);
  EXPECT_EQ(out.find("[rank 0]"), std::string::npos);
  EXPECT_NE(out.find("[rank 1] one from 1\n"), std::string::npos);
  EXPECT_NE(out.find("[rank 1] no end 1\n"), std::string::npos);
  EXPECT_NE(err.find("[rank 1] error 1\n"), std::string::npos);
}

TEST_F(LauncherTest, ManyLinesArriveWhole) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(launch("[ $RANK = 0 ] || seq 1 20000", 2), 0);
  const std::string out = testing::internal::GetCapturedStdout();
  size_t at = 0;
  for (int i = 1; i <= 20000; ++i) {
    const std::string line = "[rank 1] " + std::to_string(i) + "\n";
    ASSERT_EQ(out.compare(at, line.size(), line), 0) << "line " << i;
    at += line.size();
  }
  EXPECT_EQ(at, out.size());
}

TEST_F(LauncherTest, AProcessLeftBehindDoesNotHoldTheLauncher) {
  const auto start = Clock::now();
  EXPECT_EQ(launch("[ $RANK = 0 ] || (sleep 20 & echo $! > " + path("left") + "); exit 0", 2), 0);
  EXPECT_LT(seconds_since(start), 15);
  ::kill(std::stoi(read("left")), SIGKILL);
}

TEST_F(LauncherTest, ASignalIsForwardedAndTheRanksEndInTheirOwnWay) {
  const pid_t launcher =
      start_launcher("trap 'exit 130' INT; touch " + folder_.string() + "/ready$RANK; while :; do sleep 0.05; done");
  ASSERT_TRUE(wait_for("ready0") && wait_for("ready1"));
  ::kill(launcher, SIGINT);
  int status = 0;
  ::waitpid(launcher, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

TEST_F(LauncherTest, TellsASignalThatRanksWhichEndWellHaveHadToo) {
  const pid_t launcher = start_launcher(
      "trap 'exit 0' INT; touch " + folder_.string() + "/ready$RANK; while :; do sleep 0.05; done", 5, "interrupted");
  ASSERT_TRUE(wait_for("ready0") && wait_for("ready1"));
  ::kill(launcher, SIGINT);
  int status = 0;
  ::waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(LauncherTest, ASecondSignalEndsRanksThatDoNotListen) {
  const pid_t launcher =
      start_launcher("trap '' INT TERM; touch " + folder_.string() + "/ready$RANK; while :; do sleep 0.05; done", 1);
  ASSERT_TRUE(wait_for("ready0") && wait_for("ready1"));
  ::kill(launcher, SIGINT);
  std::this_thread::sleep_for(milliseconds(1200));
  EXPECT_EQ(::waitpid(launcher, nullptr, WNOHANG), 0) << "one signal is a request";
  ::kill(launcher, SIGINT);
  int status = 0;
  ::waitpid(launcher, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

/// timeout(1) sends it to its child and then to its group; Slurm announces an end by SIGUSR1 a while before.
TEST_F(LauncherTest, TwoSignalsAtOnceAreOneRequestAndAnAnnouncementIsNone) {
  for (const int first : {SIGTERM, SIGUSR1}) {
    std::filesystem::remove(path("ready0"));
    std::filesystem::remove(path("ready1"));
    const pid_t launcher = start_launcher(
        "trap 'sleep 2; exit 9' USR1 TERM; touch " + folder_.string() + "/ready$RANK; while :; do sleep 0.05; done", 1);
    ASSERT_TRUE(wait_for("ready0") && wait_for("ready1"));
    ::kill(launcher, first);
    std::this_thread::sleep_for(milliseconds(first == SIGTERM ? 100 : 1200));
    ::kill(launcher, SIGTERM);
    int status = 0;
    ::waitpid(launcher, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 9) << "ended by itself after " << first;
  }
}

TEST_F(LauncherTest, AStopBetweenTwoAttemptsStopsTheNext) {
  const auto start = Clock::now();
  LaunchOptions options{.num_processes = 1, .max_restarts = 3};
  options.conclude = [](int, const std::string&, bool again) {
    if (again) ::raise(SIGTERM);
  };
  const std::string script = "[ -e " + path("once") + " ] && exec sleep 60; touch " + path("once") + "; exit 6";
  EXPECT_EQ(launch_ranks(shell(script), Env::process(), options), 130);
  EXPECT_LT(seconds_since(start), 30);
}

TEST_F(LauncherTest, AttemptsHaveOneId) {
  const std::string script = "echo $LOCKSTEP_LAUNCH_ID >> " + path("ids") + "; exit 6";
  EXPECT_EQ(launch_ranks(shell(script), Env::process(), {.num_processes = 1, .max_restarts = 1}), 6);
  std::istringstream ids(read("ids"));
  std::string first, second;
  ASSERT_TRUE(ids >> first >> second);
  EXPECT_EQ(first, second);
}

/// Threads of a driver or of a host language, which the launcher did not start.
TEST_F(LauncherTest, SeesTheEndOfRanksThoughTheProgramHasOtherThreads) {
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 8; ++i) {
    others.emplace_back([&] {
      while (!over) std::this_thread::sleep_for(milliseconds(1));
    });
  }
  for (int i = 0; i < 8; ++i) EXPECT_EQ(launch("sleep 0.05; exit 0", 2), 0);
  over = true;
  for (auto& other : others) other.join();
}

TEST_F(LauncherTest, RanksDieWithTheLauncher) {
  const pid_t launcher = start_launcher("echo $$ > " + folder_.string() + "/new$RANK; mv " + folder_.string() +
                                        "/new$RANK " + folder_.string() + "/pid$RANK; exec sleep 60");
  ASSERT_TRUE(wait_for("pid0") && wait_for("pid1"));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  for (const char* name : {"pid0", "pid1"}) {
    const std::string stat = "/proc/" + std::to_string(std::stoi(read(name))) + "/stat";
    bool gone = false;
    for (int i = 0; i < 500 && !gone; ++i) {
      std::ifstream file(stat);
      std::string text((std::istreambuf_iterator<char>(file)), {});
      gone = text.empty() || text.find(") Z") != std::string::npos;
      if (!gone) std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_TRUE(gone) << name;
  }
}

}  // namespace
}  // namespace lockstep
