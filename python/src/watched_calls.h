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

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lockstep/guard/member.h"
#include "lockstep/guard/recorder.h"

namespace lockstep::python {

/// Of a job that torchrun, or whoever set these variables, has started.
struct JobPlace {
  int rank = 0, world_size = 1, local_rank = 0;
  std::string agent;       // Agent::address()
  std::string error_file;  // TORCHELASTIC_ERROR_FILE; empty: nobody reads one
};

class WatchedCalls {
 public:
  /// The one of this process. It is never destroyed: threads that outlive main() may still be in a call.
  static WatchedCalls& instance();

  /// Throws Error: the agent is not there.
  void join(const JobPlace& place);
  /// In this process: a child that it has forked is not a rank.
  bool joined() const;

  /// A call of a group in which all ranks of the job are; nullopt: it is not watched.
  struct Call {
    int group;
    uint64_t seq;
  };
  std::optional<Call> enter(const c10d::ProcessGroup& group, const CallSignature& signature);
  void launched(const Call& call, const c10::intrusive_ptr<c10d::Work>& work);
  void failed(const Call& call);

  /// What the main thread does from now on: "data", "backward", …; another word changes nothing. Returns what it did before.
  std::string enter_phase(const std::string& name);
  void say_last_words(const std::string& message, const std::string& place, bool secondary, int exit_code);
  /// A call broke, which another rank has caused: until somebody says more, this rank stands in it.
  void wait_in_last_call();
  /// What the job ended with; nullopt: nobody has ended it within `seconds`.
  std::optional<std::string> await_ending(double seconds);
  void finish(int exit_code);

  struct Counts {
    uint64_t calls = 0, unwatched = 0;
  };
  Counts counts();

 private:
  WatchedCalls() = default;
  int index_of(const std::string& name, int size);
  std::map<uint64_t, Clock::time_point>& open_of(const Call& call) { return open_[static_cast<size_t>(call.group)]; }
  void over(const Call& call, bool broken);
  void look_at_works();
  void look();

  std::mutex mutex_;
  Recorder recorder_;
  JobPlace place_;
  std::unique_ptr<Member> member_;
  std::map<std::string, int> indices_;  // of the recorder's groups, by their names; -1: not watched
  std::array<std::map<uint64_t, Clock::time_point>, Board::kGroups> open_;  // calls that are not through, since when
  int num_watched_ = 0;
  Counts counts_;
  std::atomic<int> pid_{0};  // of the process that has joined
};

/// All that this process has started, and what these have.
void kill_descendants();

}  // namespace lockstep::python
