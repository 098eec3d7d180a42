// What a process of a PyTorch job does in its groups, told to the roll call: calls as they are made, works as long as they are
// open. Nothing waits for it, and nothing is asked of the other ranks.
//
// Thread rules: any thread may call, with the interpreter's lock or without; c10d is called from several. Whoever holds the
// mutex never asks for that lock: no tensor and no work is let go there, nor is Python run.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "awaited_works.h"
#include "known_groups.h"
#include "silent_works.h"
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/guard/member.h"
#include "lockstep/guard/recorder.h"

namespace lockstep::python {

/// Of a job that torchrun, or whoever set these variables, has started.
struct JobPlace {
  int rank = 0, world_size = 1, local_rank = 0, node = 0;
  std::string agent;              // Agent::address()
  std::string error_file;         // TORCHELASTIC_ERROR_FILE; empty: nobody reads one
  std::string meeting;            // what it does until begin(): "init_process_group at 10.0.0.1:29500"
  uint64_t main_thread = 0;       // as Python counts it
  bool ends_with_parent = false;  // of a launcher that was killed nobody would ever hear
};

class WatchedCalls {
 public:
  /// The one of this process. It is never destroyed: threads that outlive main() may still be in a call.
  static WatchedCalls& instance();

  /// From any thread. Throws Error: the agent is not there; may be tried again.
  void join(const JobPlace& place);
  /// The ranks have met. From the main thread.
  void begin();
  /// See Member.
  int tree_port();
  void tell_salt(const std::string& salt);
  void tell_parent(const std::string& host, int port);
  void tell_ended(int rank, int exit_code);
  /// In this process: a child that it has forked is not a rank, and what that one says of groups and places is nobody's.
  bool joined() const;

  /// See KnownGroups.
  void learn_group(const std::string& name, const std::string& title, const std::vector<int>& ranks, bool apart);
  void set_patience(const std::string& name, double seconds);
  /// From now on this process is no rank of the job that it has joined.
  void leave();

  /// Where the main thread is, outside of any call.
  void stand_at(const std::string& place);
  /// This rank has destroyed it.
  void leave_group(const std::string& name);

  /// What a kernel has seen.
  struct Made {
    CallSignature signature;
    int peer = -1;  // of send and receive, as the group counts
    int64_t tag = 0;
    int64_t bytes = 0;
    bool has_nan = false, on_gpu = false;
    std::vector<int64_t> sends, receives;  // of an all_to_all: how many numbers to and from each of the group
    std::optional<bool> is_async;          // its thread goes on; nullopt: this torch does not say
  };
  using Call = WatchedCall;
  /// nullopt: it is not watched. Where the guard is strict it returns when all ranks have come to it alike.
  std::optional<Call> enter(const c10d::ProcessGroup& group, const Made& made);
  /// No work: the backend has nothing more to say of it. `waits`: this thread waits for it at once.
  void launched(const Call& call, const c10::intrusive_ptr<c10d::Work>& work, bool waits);
  void over(const Call& call, bool broken);

  /// Whether works are begun of which nobody tells when they are through.
  bool any_silent() const { return silent_.any(); }
  /// This thread waits for one of them, known by its address, until over(). nullopt: it is none.
  std::optional<Call> wait_begins(const void* work);

  /// The main thread makes a group of these ranks, until over(); in the order in which all of it are made. nullopt: it is not watched.
  std::optional<Call> make_group(const std::vector<int>& ranks);

  /// What this thread's calls are for, until it says something else: "layers.3 unshard". Returns what they were for.
  static std::string label(const std::string& text);
  /// This thread does nothing else until what it sends or receives from now on is through. Returns whether it did before.
  bool block(bool blocks);
  /// What is about to be gathered, as JSON: when a call differs, this tells where.
  void show_structure(const std::string& label, const std::string& json);

  /// What the main thread does from now on: "data", "backward", …; another word changes nothing. Returns what it did before.
  std::string enter_phase(const std::string& name);
  void say_last_words(const std::string& message, const std::string& place, bool secondary, int exit_code);
  /// A call broke, which another rank has caused: until somebody says more, this rank stands in it.
  void wait_in_last_call();
  /// Of an error that somebody else's end may have caused: a moment for who has ended to be named.
  void await_cause();
  bool last_call_failed();
  /// What the job ended with; nullopt: nobody has ended it within `seconds`.
  std::optional<std::string> await_ending(double seconds);
  /// These are its last words if this process ends with `code`; it is leaving, and what Python wants to end with may be caught.
  void end_with(const std::string& message, const std::string& place, bool secondary, int code);
  /// `exit_code` -1: Python does not say which that is. `place`: where it was asked to end, if that is known.
  void finish(int exit_code, const std::string& place = {});

  struct Counts {
    uint64_t calls = 0, unwatched = 0;
    int64_t bytes = 0;
    std::map<int, double> seconds_of_ranks;  // that calls have taken on each rank of this machine, a second ago at most
  };
  Counts counts();

 private:
  WatchedCalls() = default;
  void look_for_nan();
  void show_splits(const Call& call, const std::string& group, const Made& made);
  /// With the code that the process ends with, when Python is gone.
  void at_last(std::function<void(int)> last);
  void tell_code(int code);
  void mind_forks();
  void let_go_of_passed();
  void look_at_works();
  void look();
  std::vector<Call> open_calls();
  bool is_main_thread() const;
  bool main_stands_in(const Call& call, size_t num_open);

  std::mutex mutex_;
  Recorder recorder_;
  JobPlace place_;
  std::unique_ptr<Member> member_;
  KnownGroups groups_{recorder_, [this](int group) {
                        through_[static_cast<size_t>(group)] = 0;
                        silent_.forget(group);
                      }};
  std::array<uint64_t, Board::kGroups> through_{};  // calls up to this one are, as look() has seen
  AwaitedWorks awaited_;
  SilentWorks silent_;
  std::vector<Call> awaited_late_;        // that were begun before; the time is that since which a thread waits
  std::optional<Call> main_waits_;        // the main thread for it, as was known when it was made
  std::atomic<bool> others_call_{false};  // threads other than the main one: what these do next nobody knows
  std::atomic<bool> noted_nan_{false};
  Counts counts_;
  std::atomic<bool> joined_{false};
  std::atomic<bool> forked_{false};   // a child of the rank: it shares the board, which is not its own
  std::atomic<bool> leaving_{false};  // Python is on its way out, and not asked any more
};

}  // namespace lockstep::python
