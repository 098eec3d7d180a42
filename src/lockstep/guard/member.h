// The rank's side of the roll call: shows its board to the node's agent and waits for the agent's word, on a thread
// that sleeps until there is one.
//
// Example:
//   Member member(recorder, address, [&](const Ending&) { comm.abort(); });
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/worker.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {

/// Of this process, whose main thread calls.
Identity own_identity(int rank, int world_size, int local_rank, int node);

/// Begins what an interpreter says of its main thread when it is unwinding.
inline constexpr const char* kExceptionOnItsWay = "an exception is on its way";

struct MemberOptions {
  std::string address;  // Agent::address()
  Identity identity;
  double grace_seconds = 2;                          // after the ending, for the main thread to leave by itself
  std::function<void(const Ending&)> on_ending;      // any thread; unblocks the main one
  std::function<void(const Ending&)> before_exit{};  // the main thread did not leave: the process ends after this
  std::function<std::string()> own_stack{};          // of an interpreter: shown before that of the machine
};

class Member {
 public:
  /// Joins. Throws Error(kInternal) when the agent is not there or refuses.
  Member(Recorder& recorder, MemberOptions options);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  /// Where the agents of other nodes find this node's; 0 when it is alone.
  int tree_port() const { return tree_port_; }
  /// Tells the agent the salt of this attempt's key (tree_key), and after it where its parent is.
  void tell_salt(const std::string& salt) const;
  void tell_parent(const std::string& host, int port) const;
  /// Of a rank of this node that has ended without having joined: whoever sees it first says it.
  void tell_ended(int rank, int exit_code) const;

 private:
  void greet();
  void listen(const std::stop_token& stop);
  void leave_or_end(const Ending& ending, const std::stop_token& stop);

  Recorder& recorder_;
  MemberOptions options_;
  int socket_ = -1, tree_port_ = 0;
  std::unique_ptr<Worker> thread_;
};

}  // namespace lockstep
