// The ranks of one node as its agent knows them: who has joined over the node's socket, with which board, and what the
// kernel and the parent say of their processes. The kernel says too whose process knocks: only the own user's comes in, so
// that no token is needed.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/guard/board.h"
#include "lockstep/guard/census.h"
#include "lockstep/guard/straggling.h"
#include "lockstep/guard/unix_socket.h"

namespace lockstep {

class LocalRanks {
 public:
  /// Listens under this name, or a random one, that leaves nothing on disk. Throws Error: somebody else does.
  explicit LocalRanks(int node, const std::string& name = {});
  ~LocalRanks();
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  const std::string& name() const { return name_; }

  void expect(int rank, int local_rank, int world_size, pid_t pid);  // pid 0: not known
  void ended(int rank, ProcessEnd end);
  /// As another rank has seen it; nothing of one that is here, or that is not of this node.
  void ended_before_joining(int rank, int exit_code);
  /// A rank of this process, which shares its memory: threads in tests.
  void adopt(const Identity& identity, std::shared_ptr<BoardMemory> board);

  /// What those who join are told besides.
  void set_welcome(bool strict, int tree_port);

  /// Lets in who knocks, and sees who has left.
  void pump();
  /// What ranks said over the socket since the last time.
  std::vector<std::string> take_words() { return std::exchange(words_, {}); }

  std::vector<int> descriptors() const;

  size_t num_joined() const;
  bool any_joined() const { return num_joined() > 0; }
  bool all_gone() const;  // all that ever joined
  Census census(size_t tail) const;
  std::vector<RankReport> reports(size_t tail) const;
  void observe_pace(Straggling& straggling, Clock::time_point now) const;
  /// Something that a roll call should look at: a wait, an end, a failure.
  bool suspicious(double wait_seconds) const;
  /// Of the last call that all of a group have made. Quick: no other call is looked at.
  struct Comparison {
    bool parted = false;        // there or before it they made other calls
    bool lines_differ = false;  // or the same from other lines
    bool any_nan = false;       // some rank has given NaN to some call
  };
  Comparison compare() const;

  void tell_ending(const Ending& ending);
  void tell_call_times();
  void want_stacks(const RankSet& ranks);
  /// Asks all that can answer and waits for them, a moment at most.
  void fetch_stacks(Clock::duration patience);
  void clear_calls();       // strict guard: lets calls start that all have entered alike. One node.
  void release_finished();  // those who wait for the last comparison
  void kill(int signal) const;
  void kill_deaf() const;  // those that cannot hear of the ending: stopped, or never joined

 private:
  struct Local {
    int local_rank = 0, world_size = 1;
    pid_t pid = 0;
    int socket = -1, process_fd = -1;
    std::shared_ptr<BoardMemory> board;
    ProcessEnd end;
    bool adopted = false, left = false;
    Clock::time_point stopped_since{}, gone_since{}, finishing_since{}, looked{};
    bool stopped = false, gone = false, finishing = false;
    int64_t ran_ns = 0;  // of its main thread, when it was looked at
    ProcessLook process;
  };
  struct Stranger {
    int socket = -1;
    Clock::time_point came = Clock::now();
  };
  void hear_strangers();
  void let_in(int socket, Packet& packet);
  void listen_to(Local& local);
  bool all_stopped() const;
  void look(Local& local);
  void learn_end(Local& local) const;
  RankReport report(int rank, const Local& local, size_t tail) const;
  /// Groups that are compared, each with the boards of its ranks.
  std::map<uint64_t, std::vector<std::pair<Board*, Group*>>> groups() const;
  bool all_have(const std::vector<std::pair<Board*, Group*>>& group) const;

  long out_of_memory_kills_ = out_of_memory_kills();
  std::string name_;
  int node_, listener_ = -1, tree_port_ = 0;
  bool strict_ = false;
  std::vector<std::string> words_;
  std::string host_;
  std::map<int, Local> ranks_;
  std::vector<Stranger> strangers_;  // have not greeted yet
};

}  // namespace lockstep
