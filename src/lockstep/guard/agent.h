// The one of a node who watches its ranks: reads their boards some forty times a second, holds the roll call, and ends
// the job when it must end. It lives in the launcher, or in a process of its own where another launcher started us.
//
// Thread rules: it has a thread of its own; all functions may be called from any.
//
// Example:
//   Agent agent({.program = "lockstep sft", .local_ranks = 4, .world_size = 4, .say = print});
//   start_ranks(agent.address());
//   …  agent.process_ended(rank, end);
//   if (const auto end = agent.close()) { std::cerr << end->text; return end->exit_code; }
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/worker.h"
#include "lockstep/guard/absence.h"
#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/local_ranks.h"
#include "lockstep/guard/straggling.h"
#include "lockstep/guard/tree_link.h"

namespace lockstep {

struct AgentOptions {
  std::string program = "lockstep";  // begins what people read
  std::string name;                  // under which ranks find it; empty: one that nobody can guess
  int node = 0, num_nodes = 1, first_rank = 0, local_ranks = 1, world_size = 1;
  JudgeOptions judge;
  double grace_seconds = 3;  // between the ending and SIGKILL
  bool strict = false;
  bool begins_later = false;                    // with begin(): until then the process has no other thread
  bool only_tells = false;                      // what would end the job is told, and it goes on
  std::string job_secret;                       // see tree_key.h; empty: whoever reads the meeting point can join
  std::function<void(const std::string&)> say;  // a notice, as lines without the last newline
};

/// Why the job was ended, for people and for the shell.
struct Conclusion {
  Diagnosis diagnosis;
  std::string text;  // what is printed last
  std::string post_mortem;
  int exit_code = 0;
};

class Agent {
 public:
  static constexpr double kNobodySeconds = 60;  // a node whose ranks never join has died before

  explicit Agent(AgentOptions options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Once, where it was to begin later.
  void begin();
  /// For the environment of the ranks. No secret: the kernel says who knocks there.
  std::string address() const;

  void started(int rank, int local_rank, pid_t pid);
  void process_ended(int rank, const ProcessEnd& end);
  /// Ranks as threads of this process.
  void adopt(const Identity& identity, std::shared_ptr<BoardMemory> board);
  /// Somebody wants the job to end: ranks that do so at once are no fault. Those that save first may still be killed, stop or wait for
  /// each other, and nobody else would say so.
  void asked_to_stop();
  /// A person wants it to end at once: from now on nothing is a fault.
  void interrupted();

  std::optional<Conclusion> conclusion() const;
  bool any_joined() const;
  /// All ranks that ever joined have left.
  bool all_gone() const;
  /// Every node right below has told lately how its ranks stand, or is lost; so too where there is none.
  bool hears_children() const;
  /// Compares the last calls, ends the thread. `meanwhile`: again and again, as long as other nodes need this one.
  std::optional<Conclusion> close(const std::function<void()>& meanwhile = {});

  /// Where it has a process of its own: until all ranks are gone. Says the conclusion, once, and returns its exit code.
  /// `abandoned` is asked as long as nobody has joined: whether nobody will.
  int watch_to_the_end(const std::function<bool()>& abandoned);

 private:
  struct Case {
    std::string key, who;       // who is waited for
    double next_notice = 0;     // seconds of waiting
    Clock::time_point asked{};  // for stacks
    bool told = false;
  };
  void run(const std::stop_token& stop);
  void turn();
  void alert(Clock::time_point now);
  void obey(const Json& order);
  void hear(const Json& word);
  void hear_rank(const Json& word);
  void hold_roll_call(size_t tail);
  void report_up(const Census& census, bool whole);
  void tell_doubts(const Census& census);
  void watch_pace();
  void consider(const Judgement& judgement);
  bool outlasts_the_wish(const Census& census, const Judgement& judgement);
  void tell_notice(const Judgement& judgement);
  void end_job(Diagnosis diagnosis);
  void tell_end(Diagnosis diagnosis);
  void end_ranks(const Ending& ending);
  void enforce();
  void wait_for_news();
  void say(const std::string& text) const;
  std::string headline(const Diagnosis& diagnosis) const;
  bool others_need_this_node() const;
  bool meeting_parent() const;
  void look_at_own_absence();
  Diagnosis explained(Diagnosis found) const;
  bool is_root() const { return options_.node == 0; }

  AgentOptions options_;
  mutable std::mutex mutex_;
  LocalRanks ranks_;
  std::unique_ptr<TreeLink> tree_;
  Absence absence_;
  Straggling straggling_;
  Case case_;
  std::optional<Conclusion> conclusion_;
  std::vector<NodePace> children_pace_;
  Clock::time_point ended_at_{}, alert_until_{}, suspected_{}, ordered_report_{}, reported_{}, looked_{}, paced_{};
  Clock::time_point wrong_since_{};  // after a wish to stop
  std::set<Fault> told_;             // of doubts
  size_t joined_ = 0;
  bool asked_ = false, quiet_ = false, stumbled_ = false, watches_ = true, doubtful_ = false;
  std::unique_ptr<Worker> thread_;
};

}  // namespace lockstep
