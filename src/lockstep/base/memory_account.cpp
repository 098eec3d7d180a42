#include "lockstep/base/memory_account.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "lockstep/base/json_fields.h"

namespace lockstep {
const PhaseMemory* DeviceAccount::find(std::string_view phase) const {
  const auto found = std::ranges::find(phases, phase, &PhaseMemory::phase);
  return found == phases.end() ? nullptr : &*found;
}

const PhaseMemory* DeviceAccount::peak() const {
  return phases.empty() ? nullptr : &*std::ranges::max_element(phases, {}, &PhaseMemory::bytes);
}

int64_t DeviceAccount::peak_bytes() const { return phases.empty() ? 0 : peak()->bytes; }

void DeviceAccount::raise_to(const std::vector<PhaseMemory>& later) {
  for (const PhaseMemory& other : later) {
    const auto found = std::ranges::find(phases, other.phase, &PhaseMemory::phase);
    if (found == phases.end()) {
      phases.push_back(other);
    } else if (other.bytes > found->bytes) {
      *found = other;
    }
  }
}

std::vector<const DeviceAccount*> MemoryAccount::everything() const {
  std::vector<const DeviceAccount*> out;
  for (const auto& device : devices) out.push_back(&device);
  if (host) out.push_back(&*host);
  return out;
}

int64_t MemoryAccount::highest_peak() const {
  int64_t most = 0;
  for (const auto& device : devices) most = std::max(most, device.peak_bytes());
  return most;
}

int64_t RankMemory::peak_bytes() const { return own_memory ? since_start.highest_peak() : resident_peak_bytes; }

int64_t RankMemory::predicted_bytes(const MemoryAccount& predicted) const {
  if (predicted.empty()) return 0;
  if (own_memory) return predicted.highest_peak();
  int64_t sum = idle_bytes + predicted.waiting_bytes;
  for (const auto* device : predicted.everything()) sum += device->peak_bytes();
  return sum;
}

static void describe(PhaseMemory& phase, JsonFields& f) {
  f("bytes", phase.bytes);
  f("by_use", phase.by_use);
  f("at", phase.at);
}

static void describe(DeviceAccount& device, JsonFields& f) {
  f("name", device.name);
  f("capacity", device.capacity);
  f.derived("peak", device.peak_bytes());
  if (const PhaseMemory* peak = device.peak()) {
    f.derived("peak_phase", peak->phase);
    f.derived("peak_at", peak->at);
    f.derived("by_use", peak->by_use);
  }
  f("alive", device.alive);
  f("alive_by_use", device.alive_by_use);
  f("held", device.held);
  f.table("phases", device.phases, &PhaseMemory::phase);
}

static void describe(MemoryAccount& account, JsonFields& f) {
  f("batch", account.batch);
  f("context_bytes", account.context_bytes);
  f("waiting_bytes", account.waiting_bytes);
  f("process_bytes", account.process_bytes);
  f("devices", account.devices);
  f("host", account.host);
}

static void describe(RankMemory& rank, JsonFields& f) {
  f("own_memory", rank.own_memory);
  f("idle_bytes", rank.idle_bytes);
  f("resident_bytes", rank.resident_bytes);
  f("resident_peak_bytes", rank.resident_peak_bytes);
  f("uncounted_bytes", rank.uncounted_bytes);
  f("available_bytes", rank.available_bytes);
  f("since_start", rank.since_start);
  f("since_last", rank.since_last);
}

Json as_json(const DeviceAccount& device) { return json_of(device); }
Json as_json(const MemoryAccount& account) { return json_of(account); }
Json as_json(const RankMemory& rank) { return json_of(rank); }

MemoryAccount memory_account_from(const Json& value) { return record_of<MemoryAccount>(value, JsonReading::kLenient); }
RankMemory rank_memory_from(const Json& value) { return record_of<RankMemory>(value, JsonReading::kLenient); }

}  // namespace lockstep
