// What one rank tells about itself without saying a word: its flight rings, where it stands, its last words. It lives
// in sealed shared memory that the node's agent maps, so it can be read while the rank is stuck, stopped, or dead. Back
// flows the verdict. Plain memory without pointers; everything that is read from it is bounded.
//
// Thread rules: the rank writes all but `ending` and the wishes; the agent writes those. Readers never wait.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/guard/flight_ring.h"
#include "lockstep/guard/shared_value.h"

namespace lockstep {

/// What the main thread is doing, coarse enough to have a patience of its own.
enum class Phase : uint32_t {
  kStart,
  kLoad,
  kData,
  kForward,
  kBackward,
  kStep,
  kSave,
  kEvaluate,
  kGenerate,
  kRun,
  kEnd
};
inline constexpr size_t kPhases = 11;
std::string_view phase_name(Phase phase);  // "data"
std::string_view phase_text(Phase phase);  // "loading data"

enum class Life : uint32_t {
  kStarting,
  kRunning,
  kFailing,    // has written its last words
  kFinishing,  // made its last call, waits for the agent's comparison
  kFinished    // will end with `exit_code`, and that is no fault
};

/// Why a rank gives up, in its own words. Written once; the first one counts.
struct LastWords {
  int64_t exit_code = 0, at_ns = 0;
  uint64_t secondary = 0;  // 1: the transport failed under it, which another rank has caused
  uint64_t shared = 0;     // 1: every rank has the same
  FixedText<4096> message;
  FixedText<1024> hint;
  FixedText<256> place;  // "backward, text.layers.7"
};

/// Where the rank stands outside of calls.
struct Place {
  FixedText<192> detail;  // "text.layers.7", "train.jsonl:17"
  int64_t since_ns = 0;
};

/// The end of the job, as everybody is told it.
struct Ending {
  int64_t exit_code = 0;
  FixedText<8192> message;
  FixedText<1024> hint;
  FixedText<1024> post_mortem;
};

/// Seconds of whole steps, for those who compare ranks.
struct Pace {
  int64_t steps = 0;
  int64_t step_ns = 0;                      // in all steps
  std::array<int64_t, kPhases> phase_ns{};  // without the waiting
  int64_t waiting_ns = 0;                   // in calls
};

/// Who the rank is.
struct Identity {
  int64_t rank = 0, world_size = 1, local_rank = 0, node = 0, pid = 0, main_thread = 0, realtime_offset_ns = 0;
  FixedText<64> host;
};

/// The ranks of a group, one bit each; no bit: all of the job.
struct Members {
  static constexpr size_t kMost = 2048;
  std::array<uint64_t, kMost / 64> bits{};

  void add(int rank) { bits[static_cast<size_t>(rank) / 64] |= uint64_t{1} << (static_cast<size_t>(rank) % 64); }
};

/// Ranks that make calls together, in one order. The name is that of no other group of the job.
struct Group {
  std::atomic<uint64_t> id{0};  // of name and members
  std::atomic<uint64_t> waiting_seq{0};
  std::atomic<int64_t> waiting_since_ns{0};
  std::atomic<uint32_t> stands{0};       // 1: until that call is over this rank can do nothing else
  std::atomic<uint64_t> cleared{0};      // strict guard: calls up to this one are compared
  std::atomic<uint32_t> left{0};         // 1: the rank has left it and makes no further call there
  std::atomic<uint32_t> closed{0};       // what it does from now on cannot be known: it is not compared any more
  std::atomic<uint32_t> num_members{0};  // 0: all
  std::atomic<int64_t> patience_ns{0};   // for so long its own time-out lets a rank wait there; 0: as everywhere
  SharedValue<FixedText<96>> name;
  SharedValue<Members> members;
  FlightRing ring;
};

struct Board {
  static constexpr uint64_t kMagic = 0x4C4F434B53544550ULL;
  static constexpr uint64_t kVersion = 6;
  static constexpr size_t kGroups = 256;                  // of which only those in use take memory
  static constexpr uint32_t kNoPairs = 1, kNoGroups = 2;  // bits of `no_room`

  uint64_t magic = kMagic, version = kVersion;
  SharedValue<Identity> identity;
  std::atomic<Life> life{Life::kStarting};
  std::atomic<int64_t> exit_code{0};
  std::atomic<Phase> phase{Phase::kStart};
  std::atomic<int64_t> step{0};
  SharedValue<Place> place;
  SharedValue<Pace> pace;
  SharedValue<LastWords> last_words;
  SharedValue<FixedText<4096>> facts;                       // a JSON object: what must be equal on all ranks
  std::array<SharedValue<FixedText<8192>>, 16> structures;  // JSON objects, see structure.h; the latest that differ
  SharedValue<FixedText<1024>> post_mortem_dir;
  std::atomic<uint32_t> num_groups{0};
  std::atomic<uint32_t> no_room{
      0};  // it has made calls in groups that are not among these: in others it may be, unseen
  std::array<Group, kGroups> groups;

  /// Those in use; bounded whatever the memory holds.
  std::span<const Group> used_groups() const;

  // Signals that are held up for a moment, so that who has caused them is found before the rank has gone. 0: none has come.
  std::atomic<int64_t> aborts_since_ns{0}, asked_since_ns{0};  // abort(), and SIGTERM

  std::atomic<int64_t> calls_ns{0};  // that calls have taken: least on the rank that the others wait for

  // Wakes the rank: the agent raises it after a change of what follows.
  std::atomic<uint32_t> bell{0};
  std::atomic<uint32_t> has_ending{0}, stack_wanted{0}, released{0};
  SharedValue<Ending> ending;
  SharedValue<FixedText<4096>> calls_ns_of_all;  // of the node's ranks, by their number: {"0": 12, …}
  // The answer to a wish.
  std::atomic<uint32_t> stack_given{0};
  SharedValue<FixedText<8192>> stack;
};

/// Memory that holds one board.
class BoardMemory {
 public:
  /// Anonymous, sealed against a change of size. Throws Error(kInternal) when the kernel has none to give.
  static std::shared_ptr<BoardMemory> create();
  /// Maps what a peer has handed over, and takes the descriptor. nullptr when it is not a sealed board of this version.
  static std::shared_ptr<BoardMemory> map(int fd);
  ~BoardMemory();
  BoardMemory(const BoardMemory&) = delete;
  BoardMemory& operator=(const BoardMemory&) = delete;

  Board& board() const { return *board_; }
  int fd() const { return fd_; }

 private:
  BoardMemory(Board* board, int fd) : board_(board), fd_(fd) {}
  Board* board_;
  int fd_;
};

/// Waits until `word` is no longer `seen`, at most `patience`. For words in shared memory.
void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, Clock::duration patience);
void wake_all(const std::atomic<uint32_t>& word);

}  // namespace lockstep
