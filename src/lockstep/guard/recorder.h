// The writing side of a board: what this rank does, as it does it. Costs a few stores a call; nobody is asked.
//
// Thread rules: one thread records; has_ending() and board() may be used from any.
//
// Example:
//   Recorder recorder;                                  // alone; or handed to a Member, which shows it to the agent
//   const int group = recorder.add_group("data");
//   const auto seq = recorder.enter(group, signature, "text.layers.7 gather", std::source_location::current());
//   recorder.during(Phase::kData, "train.jsonl:17", [&] { batch = loader.next(); });
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/failure.h"
#include "lockstep/guard/board.h"
#include "lockstep/guard/rank_set.h"

namespace lockstep {

class Recorder;

/// A phase as long as it lives; then the one before. An exception leaves the phase that it came from standing.
class PhaseScope {
 public:
  PhaseScope(Recorder& recorder, Phase phase, std::string_view detail = {});
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  Recorder& recorder_;
  Phase phase_;
  std::string detail_;
  int exceptions_ = std::uncaught_exceptions();
};

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<BoardMemory> memory = BoardMemory::create());

  Board& board() const { return memory_->board(); }
  const std::shared_ptr<BoardMemory>& memory() const { return memory_; }

  void introduce(const Identity& identity) { board().identity.write(identity); }
  /// A group of ranks that make calls together; no members: all. Throws Error(kInternal) beyond Board::kGroups, and for a rank
  /// beyond Members::kMost.
  int add_group(std::string_view name, const RankSet& members = {});
  /// Another call of it concerns others. Throws Error(kInternal) for a rank beyond Members::kMost.
  void set_members(int group, const RankSet& members);
  /// Who waits in it waits so long by its own time-out.
  void set_patience(int group, Clock::duration patience) {
    board().groups[static_cast<size_t>(group)].patience_ns.store(
        std::chrono::duration_cast<std::chrono::nanoseconds>(patience).count(), std::memory_order_relaxed);
  }
  /// What this rank does in it from now on cannot be known.
  void close_group(int group) { board().groups[static_cast<size_t>(group)].closed.store(1, std::memory_order_release); }
  /// It makes no call there from now on; false: it has come back.
  void leave_group(int group, bool left = true) {
    board().groups[static_cast<size_t>(group)].left.store(left ? 1 : 0, std::memory_order_release);
  }
  /// It has left the group, and none of its calls there is open: its place may be another's.
  bool is_free(int group) const;
  /// What was done there is forgotten: see lack_room().
  void replace_group(int group, std::string_view name, const RankSet& members);
  /// This rank makes calls in a group that it could not add: or knows no more of: Board::kNoPairs, or both bits.
  void lack_room(uint32_t of) { board().no_room.fetch_or(of, std::memory_order_release); }
  FlightRing& ring(int group) const { return board().groups[static_cast<size_t>(group)].ring; }

  uint64_t enter(int group, const CallSignature& signature, std::string_view label, const std::source_location& site);
  void set_state(int group, uint64_t seq, CallState state) { ring(group).set_state(seq, state); }
  /// Between the two this rank can do nothing but wait for the others.
  void wait_begins(int group, uint64_t seq, Clock::time_point now);
  void wait_ends(int group, Clock::duration waited);
  /// This thread has gone on, and a device of the rank stands in the call: told again and again, by any thread. Without
  /// `stands` the call is open and the rank may do something else meanwhile.
  void device_waits(int group, uint64_t seq, Clock::time_point since, bool stands = true);
  void device_passed(int group, uint64_t seq);

  Phase phase() const { return board().phase.load(std::memory_order_relaxed); }
  /// Where the main thread stands from now on.
  void enter_phase(Phase phase, std::string_view detail = {});
  /// Another place of the same phase, or the same again.
  void stand_at(std::string_view detail, int64_t now_ns = steady_ns());
  /// Runs `body`. What it throws becomes this rank's last words at once, before any clean-up further out can block.
  template <typename Body>
  auto confessing(Body&& body) {
    try {
      return std::forward<Body>(body)();
    } catch (const std::exception& error) {
      say_last_words(describe_failure(error));
      throw;
    }
  }
  /// The same in a phase; then comes back to the one before.
  template <typename Body>
  auto during(Phase phase, std::string_view detail, Body&& body) {
    const PhaseScope scope(*this, phase, detail);
    return confessing(std::forward<Body>(body));
  }
  /// The figures of a whole step become readable.
  void step_done(int64_t step);

  /// The first one counts. `secondary`: a call broke, which another rank has caused.
  void say_last_words(const Failure& failure, bool secondary = false);
  /// Somebody wants this process to end, and it ends at once: no fault. The last thing that it does; any thread.
  void say_stopped(const std::string& message);
  bool has_last_words() const { return board().last_words.version() > 0; }

  /// What must be equal on all ranks, compared by the agent as soon as it is told. Another value of a name that was told
  /// begins another run of this process: it is compared with ranks that have begun it too.
  void add_fact(const std::string& name, const std::string& value);
  /// What this rank was started with, told and not compared: a diagnosis names what to start it with instead. `name` is
  /// "--model" or "WORLD_SIZE", `value` as a shell takes it.
  void add_setting(const std::string& name, const std::string& value);
  /// What the next calls of the label in it carry, see structure.h.
  void show_structure(const std::string& label, std::string_view json);
  void set_post_mortem_dir(std::string_view dir) { board().post_mortem_dir.write(FixedText<1024>(dir)); }

  /// Somebody reads this board and will end the job when it must end.
  bool watched() const { return watched_; }
  void set_watched(bool strict);

  /// The guard is strict: returns when all ranks have entered this call with the same signature, or the job has ended.
  void await_clearance(int group, uint64_t seq, Clock::duration patience) const;
  bool strict() const { return strict_; }

  bool has_ending() const { return board().has_ending.load(std::memory_order_acquire) != 0; }
  /// Waits for the agent's word; nothing when it does not come in time, or nobody watches.
  std::optional<Ending> await_ending(Clock::duration patience) const;

  /// No more calls: lets the agent compare the last ones. Returns when it has, or after a moment.
  void finish(int exit_code);

 private:
  friend class PhaseScope;
  void name_group(int group, std::string_view name, const RankSet& members);
  std::string_view site_text(const std::source_location& site);
  void tell_facts();

  std::shared_ptr<BoardMemory> memory_;
  int num_groups_ = 0;
  bool watched_ = false, strict_ = false;
  std::string detail_;
  std::map<std::string, std::string> facts_, settings_;
  std::vector<std::string> structures_;  // labels of those on the board
  size_t next_structure_ = 0;
  int run_ = 1;
  Pace pace_;
  int64_t phase_since_ns_ = 0, step_since_ns_ = 0, waited_in_phase_ns_ = 0;

  struct Site {
    const char* file = nullptr;
    uint32_t line = 0;
    std::string text;
  };
  std::array<Site, 64> sites_;
};

}  // namespace lockstep
