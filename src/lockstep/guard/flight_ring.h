// The last calls of one group of ranks, readable while the rank is stuck or after it has died: what is not in the ring
// did not happen. Plain memory without pointers, so that it may live in shared memory.
//
// Thread rules: one writer (the thread that communicates), any number of readers, no locks.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/guard/call.h"
#include "lockstep/guard/shared_value.h"

namespace lockstep {

int64_t steady_ns();

enum class CallState : uint64_t { kEntered, kLaunched, kDone, kFailed };
std::string_view call_state_name(CallState state);

/// Behind the line of a call that another thread than the main one has made.
inline constexpr std::string_view kInThread = " (thread)";

/// One call, plain bytes. Times are nanoseconds of the steady clock.
struct FlightRecord {
  uint64_t seq = 0;      // from 1
  uint64_t history = 0;  // rolling hash of signatures and labels up to this call: equal where all of it was equal
  uint64_t path = 0;     // the same of the lines that made them, which may differ by right; stays on this machine
  CallSignature signature;
  FixedText<80> label;  // "text.layers.7 gather"
  FixedText<48> site;   // "residency.cpp:45"
  int64_t step = 0, entered_ns = 0;
  uint64_t has_nan = 0;  // this rank gave what is no number
  CallState state = CallState::kEntered;
  int64_t done_ns = 0;

  bool over() const { return state == CallState::kDone || state == CallState::kFailed; }
  std::string call() const;      // "all_gather bf16[4096] \"text.layers.7 gather\""
  std::string describe() const;  // "#41 all_gather bf16[4096] \"text.layers.7 gather\": launched for 2.1s now"
};

class FlightRing {
 public:
  static constexpr size_t kSize = 1024;

  /// Enters a call before it starts; returns its number, from 1.
  uint64_t enter(const CallSignature& signature, std::string_view label, std::string_view site = {}, int64_t step = 0,
                 int64_t now_ns = steady_ns());
  void set_state(uint64_t seq, CallState state);
  void set_over(uint64_t seq, bool broken, int64_t now_ns);
  void set_has_nan(uint64_t seq);

  /// It begins anew, as another's. Not while a call is open: who ends that one would end another.
  void restart();
  bool any_open() const;

  uint64_t entered() const { return count_.load(std::memory_order_acquire); }
  /// Of all calls entered so far: equal on ranks that did the same.
  uint64_t history() const { return history_.load(std::memory_order_relaxed); }
  uint64_t nan_calls() const { return nan_calls_.load(std::memory_order_relaxed); }
  /// Nothing when it was overwritten, or is being written. Bounded whatever the memory holds.
  std::optional<FlightRecord> find(uint64_t seq) const;
  std::vector<FlightRecord> last(size_t count) const;  // oldest first; records being written are left out
  /// The first call behind number `through` that is launched and not over. `through` moves on past all that are over by now,
  /// so that the next look begins there.
  std::optional<FlightRecord> first_launched(uint64_t& through) const;

 private:
  /// Else a later call was written over it, or it was made before the ring began anew.
  bool holds(uint64_t seq) const { return seq <= entered() && seq + kSize > entered(); }

  std::array<SharedValue<FlightRecord>, kSize> slots_;
  std::atomic<uint64_t> count_{0};  // zero memory is an empty ring
  std::atomic<uint64_t> history_{0}, path_{0}, nan_calls_{0};
};

/// Of a number from outside: so small that sums and differences of two do not overflow.
inline int64_t bounded(int64_t value) {
  constexpr int64_t kMost = int64_t{1} << 61;
  return std::clamp(value, -kMost, kMost);
}

}  // namespace lockstep
