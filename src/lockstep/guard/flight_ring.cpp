#include "lockstep/guard/flight_ring.h"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>

#include "lockstep/base/clock.h"

namespace lockstep {

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::string_view call_state_name(CallState state) {
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

std::string FlightRecord::call() const {
  return label.view().empty() ? signature.describe() : fmt::format("{} \"{}\"", signature.describe(), label.view());
}

std::string FlightRecord::describe() const {
  const double seconds = static_cast<double>((over() ? done_ns : steady_ns()) - entered_ns) * 1e-9;
  return fmt::format("#{} {}: {} {} {:.1f}s{}", seq, call(), call_state_name(state), over() ? "in" : "for", seconds,
                     over() ? "" : " now");
}

uint64_t FlightRing::enter(const CallSignature& signature, std::string_view label, std::string_view site, int64_t step,
                           int64_t now_ns) {
  const uint64_t seq = count_.load(std::memory_order_relaxed) + 1;
  // Multiplying by an odd number keeps all of the past; the rotation lets the order of calls count.
  const auto rolled = [](const std::atomic<uint64_t>& past, uint64_t word) {
    const uint64_t before = past.load(std::memory_order_relaxed);
    return ((before << 7 | before >> 57) ^ word) * 0xD6E8FEB86659FD93ULL + 1;
  };
  const uint64_t history = rolled(history_, signature.hash() ^ hash_bytes(label) * 3);
  const uint64_t path = rolled(path_, hash_bytes(site));
  slots_[seq % kSize].write({.seq = seq,
                             .history = history,
                             .path = path,
                             .signature = signature,
                             .label = FixedText<80>(label),
                             .site = FixedText<48>(site),
                             .step = step,
                             .entered_ns = now_ns});
  history_.store(history, std::memory_order_relaxed);
  path_.store(path, std::memory_order_relaxed);
  count_.store(seq, std::memory_order_release);
  return seq;
}

void FlightRing::set_state(uint64_t seq, CallState state) {
  if (state == CallState::kDone || state == CallState::kFailed) {
    return set_over(seq, state == CallState::kFailed, steady_ns());
  }
  if (!holds(seq)) return;
  const auto word = static_cast<uint64_t>(state);
  slots_[seq % kSize].write_words(&word, offsetof(FlightRecord, state) / sizeof(uint64_t), 1);
}

void FlightRing::set_over(uint64_t seq, bool broken, int64_t now_ns) {
  if (!holds(seq)) return;
  static_assert(offsetof(FlightRecord, done_ns) == offsetof(FlightRecord, state) + sizeof(uint64_t));
  const std::array<uint64_t, 2> words{static_cast<uint64_t>(broken ? CallState::kFailed : CallState::kDone),
                                      static_cast<uint64_t>(now_ns)};
  slots_[seq % kSize].write_words(words.data(), offsetof(FlightRecord, state) / sizeof(uint64_t), words.size());
}

void FlightRing::restart() {
  for (auto* word : {&count_, &history_, &path_, &nan_calls_}) word->store(0, std::memory_order_release);
}

bool FlightRing::any_open() const {
  return !std::ranges::all_of(last(kSize), [](const FlightRecord& call) { return call.over(); });
}

void FlightRing::set_has_nan(uint64_t seq) {
  const uint64_t yes = 1;
  slots_[seq % kSize].write_words(&yes, offsetof(FlightRecord, has_nan) / sizeof(uint64_t), 1);
  nan_calls_.fetch_add(1, std::memory_order_relaxed);
}

std::optional<FlightRecord> FlightRing::find(uint64_t seq) const {
  FlightRecord record;
  if (seq == 0 || seq > entered() || !slots_[seq % kSize].read(record) || record.seq != seq) return std::nullopt;
  record.state = std::min(record.state, CallState::kFailed);
  record.entered_ns = bounded(record.entered_ns);
  record.done_ns = bounded(record.done_ns);
  return record;
}

std::vector<FlightRecord> FlightRing::last(size_t count) const {
  const uint64_t end = entered();
  const uint64_t available = std::min<uint64_t>({end, kSize, count});
  std::vector<FlightRecord> records;
  for (uint64_t back = available; back > 0; --back) {
    if (const auto record = find(end - back + 1)) records.push_back(*record);
  }
  return records;
}

std::optional<FlightRecord> FlightRing::first_launched(uint64_t& through) const {
  const uint64_t end = entered();
  through = std::max(through, end - std::min<uint64_t>(end, kSize));
  for (uint64_t seq = through + 1; seq <= end; ++seq) {
    const auto call = find(seq);
    if (!call || call->state == CallState::kLaunched) return call;  // one that is being written is looked at again
    if (call->over() && seq == through + 1) through = seq;
  }
  return std::nullopt;
}

}  // namespace lockstep
