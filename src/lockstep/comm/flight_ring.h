// The last calls of this rank, readable while it is stuck: what is not in the ring did not happen.
//
// Thread rules: one writer (the thread that communicates), any number of readers, no locks on the writer's path.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/call.h"

namespace lockstep {

enum class CallState : uint8_t { kEntered, kLaunched, kDone, kFailed };

/// One call, plain bytes. Times are nanoseconds of the steady clock.
struct FlightRecord {
  uint64_t seq = 0;
  CallSignature signature;
  CallState state = CallState::kEntered;
  int64_t entered_ns = 0, done_ns = 0;
  std::array<char, 64> label{};

  std::string describe() const;  // "#41 all_gather bf16[4096] (text.layers.7 gather): launched for 2.1s now"
};

class FlightRing {
 public:
  static constexpr size_t kSize = 1024;

  uint64_t enter(const CallSignature& signature, std::string_view label);  // returns seq, from 1
  void set_state(uint64_t seq, CallState state);
  std::vector<FlightRecord> last(size_t count) const;  // oldest first; records being written are left out
  uint64_t fingerprint() const;  // rolling hash over all calls entered so far: equal on ranks that did the same

 private:
  // A sequence lock over atomic words: a reader that meets a write in progress sees an odd or changed version.
  static constexpr size_t kWords = sizeof(FlightRecord) / sizeof(uint64_t);
  struct Slot {
    std::atomic<uint64_t> version{0};
    std::array<std::atomic<uint64_t>, kWords> words{};
  };
  static void write(Slot& slot, const FlightRecord& record);
  static bool read(const Slot& slot, FlightRecord& record);

  std::array<Slot, kSize> slots_;
  std::atomic<uint64_t> next_{1};
  std::atomic<uint64_t> fingerprint_{0};
};

static_assert(sizeof(FlightRecord) % sizeof(uint64_t) == 0);

}  // namespace lockstep
