#include "lockstep/guard/local_ranks.h"

#include <csignal>
#include <functional>
#include <random>
#include <thread>
#include <tuple>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

bool pump_until(LocalRanks& ranks, const std::function<bool()>& done) {
  const Deadline deadline(std::chrono::seconds(10));
  while (!done()) {
    if (deadline.passed()) return false;
    ranks.pump();
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

/// A process that knocks, or a part of this one.
class Knock {
 public:
  explicit Knock(const LocalRanks& ranks) : socket_(connect_to_name(ranks.name())) { EXPECT_GE(socket_, 0); }
  ~Knock() { ::close(socket_); }
  Knock(const Knock&) = delete;
  Knock& operator=(const Knock&) = delete;

  void say(std::string_view text, int descriptor = -1) const { EXPECT_TRUE(send_packet(socket_, text, descriptor)); }
  void greet(const Json& rank, int descriptor) const { say(Json({{"rank", rank}}).dump(), descriptor); }
  /// What the agent answers; "" when it hangs up without a word.
  std::string answer(LocalRanks& ranks) const {
    std::string text;
    EXPECT_TRUE(pump_until(ranks, [&] {
      pollfd ready{socket_, POLLIN, 0};
      if (::poll(&ready, 1, 0) <= 0) return false;
      if (const auto packet = receive_packet(socket_, 0)) text = packet->text;
      return true;
    }));
    return text;
  }

 private:
  int socket_;
};

TEST(LocalRanks, LetsInWhoNamesItsRankAndShowsItsBoard) {
  LocalRanks ranks(2);
  ranks.set_welcome(/*strict=*/true, 4711);
  Recorder recorder;
  recorder.introduce({.rank = 3, .world_size = 8, .pid = ::getpid()});
  const Knock knock(ranks);
  knock.greet(3, recorder.memory()->fd());
  EXPECT_EQ(knock.answer(ranks), R"({"welcome":true,"strict":true,"tree_port":4711})");
  EXPECT_TRUE(ranks.any_joined());
  recorder.enter_phase(Phase::kSave, "x");
  const auto reports = ranks.reports(8);
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].rank, 3);
  EXPECT_EQ(reports[0].node, 2);
  EXPECT_EQ(reports[0].pid, ::getpid());
  EXPECT_EQ(reports[0].phase, Phase::kSave);
  knock.say("a word");
  ASSERT_TRUE(pump_until(ranks, [&] { return ranks.take_words() == std::vector<std::string>{"a word"}; }));
}

// mpirun --map-by node deals ranks to hosts in turn.
TEST(LocalRanks, ARankThatWasNotExpectedIsTheOneOfItsPlace) {
  LocalRanks ranks(1);
  ranks.expect(1, 0, 4, 0);
  ranks.expect(2, 1, 4, 0);
  Recorder recorder;
  recorder.introduce({.rank = 3, .world_size = 4, .local_rank = 1, .pid = ::getpid()});
  const Knock knock(ranks);
  knock.greet(3, recorder.memory()->fd());
  EXPECT_NE(knock.answer(ranks).find("welcome"), std::string::npos);
  std::vector<int> known;
  for (const auto& report : ranks.reports(8)) known.push_back(report.rank);
  EXPECT_EQ(known, (std::vector<int>{1, 3}));
}

/// A process that joins as rank 1, is welcomed and ends by `signal`, or with `code` where that is 0.
pid_t join_and_end(const LocalRanks& ranks, const Recorder& recorder, int signal, int code) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int socket = connect_to_name(ranks.name());
  (void)send_packet(socket, Json({{"rank", 1}}).dump(), recorder.memory()->fd());
  pollfd answer{socket, POLLIN, 0};
  ::poll(&answer, 1, 10'000);
  if (signal == 0) ::_exit(code);
  ::signal(signal, SIG_DFL);  // a sanitizer has its own
  ::raise(signal);
  ::_exit(99);
}

// A launcher that is not ours asks for its processes when it likes: until then the kernel tells anybody of the same user.
TEST(LocalRanks, TellHowAProcessEndedThatIsSomebodyElses) {
  for (const auto& [how, signal, code] :
       {std::tuple{SIGKILL, SIGKILL, 0}, {SIGSEGV, SIGSEGV, 0}, {0, 0, 3}, {SIGTERM, 0, 0}}) {
    LocalRanks ranks(0);
    Recorder recorder;
    const pid_t child = join_and_end(ranks, recorder, how, code);
    ASSERT_TRUE(pump_until(ranks, [&] { return ranks.all_gone(); }));
    const auto known = [&] { return ranks.reports(1)[0].end; };
    ASSERT_TRUE(how == SIGTERM || pump_until(ranks, [&] { return known().known; }));
    EXPECT_EQ(known().known, how != SIGTERM) << "whoever wanted it is not known";
    EXPECT_EQ(known().signal, signal);
    EXPECT_EQ(known().exit_code, code);
    ::waitpid(child, nullptr, 0);
  }
}

// multiprocessing waits for its children, and has asked before anybody else looks.
TEST(LocalRanks, TellHowAProcessEndedWhoseParentHasAsked) {
  for (const auto& [signal, code] : {std::pair{SIGKILL, 0}, {0, 3}, {0, 0}}) {
    LocalRanks ranks(0);
    Recorder recorder;
    const pid_t child = join_and_end(ranks, recorder, signal, code);
    const int process = open_process(child);
    ASSERT_TRUE(pump_until(ranks, [&] { return ranks.any_joined(); }));
    ::waitpid(child, nullptr, 0);
    const bool is_told = status_of_reaped(process).has_value();
    ::close(process);
    ASSERT_TRUE(pump_until(ranks, [&] { return ranks.all_gone(); }));
    const auto end = [&] { return ranks.reports(1)[0].end; };
    ASSERT_TRUE(!is_told || pump_until(ranks, [&] { return end().known; }));
    EXPECT_EQ(end().known, is_told) << "a kernel before 6.15 does not tell";
    EXPECT_EQ(end().signal, is_told ? signal : 0);
    EXPECT_EQ(end().exit_code, is_told ? code : 0);
  }
}

TEST(LocalRanks, ARankThatNeverJoinsHasEndedWhenAnotherSaysSo) {
  LocalRanks ranks(0);
  ranks.expect(0, 0, 2, 0);
  ranks.expect(1, 1, 2, 0);
  Recorder recorder;
  recorder.introduce({.rank = 0, .world_size = 2, .pid = ::getpid()});
  const Knock knock(ranks);
  knock.greet(0, recorder.memory()->fd());
  EXPECT_NE(knock.answer(ranks).find("welcome"), std::string::npos);
  ranks.ended_before_joining(0, 3);
  ranks.ended_before_joining(7, 3);
  ASSERT_EQ(ranks.reports(1).size(), 2U) << "no rank of this node";
  EXPECT_FALSE(ranks.reports(1)[0].end.known) << "it is here";
  ranks.ended_before_joining(1, 0);
  ranks.pump();
  const RankReport gone = ranks.reports(1)[1];
  EXPECT_TRUE(gone.end.known);
  EXPECT_EQ(gone.process.state, ProcessState::kGone);
  recorder.enter_phase(Phase::kStart, "init_process_group at train.py:7");
  Census census = ranks.census(1);
  EXPECT_EQ(judge(census).verdict, Verdict::kFine) << "nobody waits for it yet";
  for (auto& one : census.classes) one.sample.phase_seconds = 1;
  const Diagnosis found = judge(census).diagnosis;
  EXPECT_EQ(found.culprits, RankSet{1});
  EXPECT_EQ(found.headline, "rank 1 ended with exit code 0 before it joined the others");
  EXPECT_NE(found.why.find("will not come"), std::string::npos) << found.why;
}

TEST(LocalRanks, RefusesEverybodyElse) {
  LocalRanks ranks(0);
  const Recorder first, second;
  const int board = first.memory()->fd();
  const int garbage = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  const auto answer = [&](const std::function<void(const Knock&)>& greet) {
    const Knock knock(ranks);
    greet(knock);
    return knock.answer(ranks);
  };
  const auto with = [&](const Json& rank, int descriptor) {
    return answer([&](const Knock& knock) { knock.greet(rank, descriptor); });
  };
  EXPECT_EQ(with("0", board), R"({"refused":"the greeting names no rank"})");
  EXPECT_EQ(with(-1, board), R"({"refused":"there is no such rank"})");
  EXPECT_EQ(with(int64_t{1} << 40, board), R"({"refused":"there is no such rank"})");
  EXPECT_EQ(with(0, -1), R"({"refused":"no board of this version"})");
  EXPECT_EQ(with(0, garbage), R"({"refused":"no board of this version"})");
  EXPECT_EQ(answer([](const Knock& knock) { knock.say("{"); }), R"({"refused":"the greeting names no rank"})");
  EXPECT_EQ(answer([&](const Knock& knock) { knock.say(std::string(4000, '['), board); }),
            R"({"refused":"the greeting names no rank"})");
  EXPECT_FALSE(ranks.any_joined());
  EXPECT_TRUE(ranks.reports(8).empty());  // nothing is left of them
  EXPECT_EQ(ranks.descriptors().size(), 1U);

  const Knock joined(ranks);
  joined.greet(0, board);
  EXPECT_NE(joined.answer(ranks).find("welcome"), std::string::npos);
  EXPECT_EQ(with(0, second.memory()->fd()), R"({"refused":"this rank has joined already"})");
  EXPECT_FALSE(ranks.all_gone());
  ::close(garbage);
}

TEST(LocalRanks, SilentStrangersHoldNobodyUp) {
  LocalRanks ranks(0);
  constexpr size_t kStrangers = 100;
  std::vector<std::unique_ptr<Knock>> silent(kStrangers);
  for (auto& one : silent) one = std::make_unique<Knock>(ranks);
  ranks.pump();
  Recorder recorder;
  const Knock knock(ranks);
  knock.greet(1, recorder.memory()->fd());
  EXPECT_NE(knock.answer(ranks).find("welcome"), std::string::npos);
  EXPECT_EQ(silent.front()->answer(ranks), "");
  EXPECT_EQ(ranks.reports(1).size(), 1U);
}

TEST(LocalRanks, AnyPacketsAreHeardWithoutHarm) {
  constexpr uint64_t kSeed = 41;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  LocalRanks ranks(0);
  const Recorder recorder;
  const std::string valid = R"({"rank":1})";
  for (int round = 0; round < 400; ++round) {
    const Knock knock(ranks);
    std::string text = valid;
    for (uint64_t i = 0, flips = 1 + random() % 4; i < flips; ++i)
      text[random() % text.size()] = static_cast<char>(random());
    if (round % 5 == 0) text.assign(random() % 4096, static_cast<char>(random()));
    if (text.empty()) continue;
    knock.say(text, round % 2 == 0 ? recorder.memory()->fd() : -1);
    ranks.pump();
  }
  EXPECT_LE(ranks.reports(1).size(), 3U);
}

// A real process: how it stops, dies, and is seen to.
TEST(LocalRanks, OneThatRunsNowAndThenIsNotStopped) {
  LocalRanks ranks(0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile uint64_t turns = 0;;) turns = turns + 1;
  }
  ranks.expect(0, 0, 1, child);
  const auto stopped_for = [&] { return ranks.reports(1).at(0).stopped_seconds; };
  const auto stop = [&] {
    ::kill(child, SIGSTOP);
    int how = 0;
    ::waitpid(child, &how, WUNTRACED);  // a look finds it stopped, not on its way there
    EXPECT_TRUE(WIFSTOPPED(how));
  };
  constexpr int kPulses = 5;
  int times_begun_anew = 0;
  stop();
  for (int pulse = 0; pulse < kPulses; ++pulse) {
    EXPECT_TRUE(pump_until(ranks, [&] { return stopped_for() > 0.3; }));
    const double before = stopped_for();
    ::kill(child, SIGCONT);  // it runs while nobody looks
    std::this_thread::sleep_for(milliseconds(20));
    stop();
    EXPECT_TRUE(pump_until(ranks, [&] { return stopped_for() < before || stopped_for() > before + 1; }));
    times_begun_anew += stopped_for() < before ? 1 : 0;
  }
  ranks.kill(SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(times_begun_anew, kPulses);
}

// As Ctrl-Z and fg do to a job: signals reach ranks one after another.
TEST(LocalRanks, RanksThatAreAllStoppedAreNotLateForEachOther) {
  LocalRanks ranks(0);
  std::array<pid_t, 2> children{};
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t child = children[static_cast<size_t>(rank)] = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      while (true) ::pause();
    }
    ranks.expect(rank, rank, 2, child);
  }
  const auto stopped_for = [&](size_t rank) { return ranks.reports(1).at(rank).stopped_seconds; };
  for (const pid_t child : children) ::kill(child, SIGSTOP);
  const auto both_are = [&] {
    const auto reports = ranks.reports(1);
    return std::ranges::all_of(reports, [](const auto& one) { return one.process.state == ProcessState::kStopped; });
  };
  EXPECT_TRUE(pump_until(ranks, both_are));
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(600);
  EXPECT_TRUE(pump_until(ranks, [&] { return std::chrono::steady_clock::now() > until; }));
  EXPECT_LT(stopped_for(1), 0.3) << "while both stand";
  ::kill(children[0], SIGCONT);
  EXPECT_TRUE(pump_until(ranks, [&] { return stopped_for(1) > 0.4; })) << "when the other runs it counts";
  for (const pid_t child : children) ::kill(child, SIGKILL);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
}

TEST(LocalRanks, SeesAProcessStopAndDie) {
  LocalRanks ranks(0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) ::pause();
  }
  ranks.expect(0, 0, 1, child);
  const auto state = [&] { return ranks.reports(1).at(0).process.state; };
  EXPECT_TRUE(pump_until(ranks, [&] { return ranks.reports(1).at(0).pid == child; }));
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(pump_until(ranks, [&] { return state() == ProcessState::kStopped; }));
  EXPECT_TRUE(ranks.suspicious(1));
  EXPECT_TRUE(pump_until(ranks, [&] { return ranks.reports(1).at(0).stopped_seconds > 0.05; }));
  ::kill(child, SIGCONT);
  EXPECT_TRUE(pump_until(ranks, [&] { return state() == ProcessState::kAlive; }));
  EXPECT_EQ(ranks.reports(1).at(0).stopped_seconds, 0);
  ranks.kill(SIGKILL);
  EXPECT_TRUE(pump_until(ranks, [&] { return state() == ProcessState::kGone; }));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  ranks.ended(0, {.known = true, .signal = SIGKILL});
  EXPECT_EQ(ranks.reports(1).at(0).end.signal, SIGKILL);
}

}  // namespace
}  // namespace lockstep
