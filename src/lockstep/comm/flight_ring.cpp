#include "lockstep/comm/flight_ring.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lockstep/base/clock.h"

namespace lockstep {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::string_view state_text(CallState state) {
  switch (state) {
    using enum CallState;
    case kEntered:
      return "entered";
    case kLaunched:
      return "launched";
    case kDone:
      return "done";
    case kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace

std::string FlightRecord::describe() const {
  const std::string_view text(label.data(), strnlen(label.data(), label.size()));
  const bool over = state == CallState::kDone || state == CallState::kFailed;
  const double seconds = static_cast<double>((over ? done_ns : now_ns()) - entered_ns) * 1e-9;
  return fmt::format("#{} {} ({}): {} {} {:.1f}s{}", seq, signature.describe(), text, state_text(state),
                     over ? "in" : "for", seconds, over ? "" : " now");
}

/// An odd version marks a record being written. The words are released and acquired one by one, which orders them
/// against the version without a fence.
void FlightRing::write(Slot& slot, const FlightRecord& record) {
  std::array<uint64_t, kWords> plain{};
  std::memcpy(plain.data(), &record, sizeof record);
  const uint64_t version = slot.version.load(std::memory_order_relaxed);
  slot.version.store(version + 1, std::memory_order_relaxed);
  for (size_t i = 0; i < kWords; ++i) slot.words[i].store(plain[i], std::memory_order_release);
  slot.version.store(version + 2, std::memory_order_release);
}

bool FlightRing::read(const Slot& slot, FlightRecord& record) {
  const uint64_t before = slot.version.load(std::memory_order_acquire);
  std::array<uint64_t, kWords> plain{};
  for (size_t i = 0; i < kWords; ++i) plain[i] = slot.words[i].load(std::memory_order_acquire);
  std::memcpy(static_cast<void*>(&record), plain.data(), sizeof record);
  return before % 2 == 0 && slot.version.load(std::memory_order_relaxed) == before;
}

uint64_t FlightRing::enter(const CallSignature& signature, std::string_view label) {
  const uint64_t seq = next_.load(std::memory_order_relaxed);
  FlightRecord record{.seq = seq, .signature = signature, .entered_ns = now_ns()};
  const size_t length = std::min(label.size(), record.label.size() - 1);
  std::memcpy(record.label.data(), label.data(), length);
  write(slots_[seq % kSize], record);
  const uint64_t before = fingerprint_.load(std::memory_order_relaxed);
  fingerprint_.store((before ^ signature.hash()) * 0x100000001B3ULL + 1, std::memory_order_relaxed);
  next_.store(seq + 1, std::memory_order_release);
  return seq;
}

void FlightRing::set_state(uint64_t seq, CallState state) {
  Slot& slot = slots_[seq % kSize];
  FlightRecord record;
  if (!read(slot, record) || record.seq != seq) return;  // overwritten by a later call
  record.state = state;
  if (state == CallState::kDone || state == CallState::kFailed) record.done_ns = now_ns();
  write(slot, record);
}

std::vector<FlightRecord> FlightRing::last(size_t count) const {
  const uint64_t end = next_.load(std::memory_order_acquire);
  const uint64_t available = std::min<uint64_t>(std::min<uint64_t>(end - 1, kSize), count);
  std::vector<FlightRecord> records;
  for (uint64_t seq = end - available; seq < end; ++seq) {
    FlightRecord record;
    if (read(slots_[seq % kSize], record) && record.seq == seq) records.push_back(record);
  }
  return records;
}

uint64_t FlightRing::fingerprint() const { return fingerprint_.load(std::memory_order_relaxed); }

}  // namespace lockstep
