#include "lockstep/base/memory_account.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

Json uses_json(const BytesOfUses& uses) {
  Json out = Json::object();
  for (const auto& [use, bytes] : uses) out[use] = bytes;
  return out;
}

const Json& member(const Json& value, const char* key) {
  static const Json none;
  const auto found = value.is_object() ? value.find(key) : value.end();
  return found == value.end() ? none : *found;
}

int64_t integer(const Json& value, const char* key) {
  const Json& found = member(value, key);
  return found.is_number() ? found.get<int64_t>() : 0;
}

std::string text(const Json& value, const char* key) {
  const Json& found = member(value, key);
  return found.is_string() ? found.get<std::string>() : "";
}

BytesOfUses uses_from(const Json& value) {
  BytesOfUses out;
  if (!value.is_object()) return out;
  for (const auto& [use, bytes] : value.items()) {
    if (bytes.is_number()) out.emplace_back(use, bytes.get<int64_t>());
  }
  return out;
}

}  // namespace

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
  int64_t sum = idle_bytes;
  for (const auto* device : predicted.everything()) sum += device->peak_bytes();
  return sum;
}

Json as_json(const DeviceAccount& device) {
  Json phases = Json::object();
  for (const auto& phase : device.phases) {
    phases[phase.phase] = {{"bytes", phase.bytes}, {"by_use", uses_json(phase.by_use)}, {"at", phase.at}};
  }
  Json out{{"name", device.name}, {"capacity", device.capacity}, {"peak", device.peak_bytes()}};
  if (const PhaseMemory* peak = device.peak()) {
    out["peak_phase"] = peak->phase;
    out["peak_at"] = peak->at;
    out["by_use"] = uses_json(peak->by_use);
  }
  out["alive"] = device.alive;
  out["alive_by_use"] = uses_json(device.alive_by_use);
  out["phases"] = std::move(phases);
  return out;
}

Json as_json(const MemoryAccount& account) {
  Json devices = Json::array();
  for (const auto& device : account.devices) devices.push_back(as_json(device));
  return {{"batch", account.batch},
          {"context_bytes", account.context_bytes},
          {"devices", std::move(devices)},
          {"host", account.host ? as_json(*account.host) : Json()}};
}

Json as_json(const RankMemory& rank) {
  return {{"own_memory", rank.own_memory},
          {"idle_bytes", rank.idle_bytes},
          {"resident_bytes", rank.resident_bytes},
          {"resident_peak_bytes", rank.resident_peak_bytes},
          {"uncounted_bytes", rank.uncounted_bytes},
          {"available_bytes", rank.available_bytes},
          {"since_start", as_json(rank.since_start)},
          {"since_last", as_json(rank.since_last)}};
}

DeviceAccount device_account_from(const Json& value) {
  DeviceAccount out{.name = text(value, "name"),
                    .capacity = integer(value, "capacity"),
                    .alive = integer(value, "alive"),
                    .alive_by_use = uses_from(member(value, "alive_by_use")),
                    .phases = {}};
  if (const Json& phases = member(value, "phases"); phases.is_object()) {
    for (const auto& [name, phase] : phases.items()) {
      out.phases.push_back({name, integer(phase, "bytes"), uses_from(member(phase, "by_use")), text(phase, "at")});
    }
  }
  return out;
}

MemoryAccount memory_account_from(const Json& value) {
  MemoryAccount out;
  out.batch = text(value, "batch");
  out.context_bytes = integer(value, "context_bytes");
  if (const Json& devices = member(value, "devices"); devices.is_array()) {
    for (const auto& device : devices) out.devices.push_back(device_account_from(device));
  }
  if (const Json& host = member(value, "host"); host.is_object()) out.host = device_account_from(host);
  return out;
}

RankMemory rank_memory_from(const Json& value) {
  return {.since_start = memory_account_from(member(value, "since_start")),
          .since_last = memory_account_from(member(value, "since_last")),
          .own_memory = member(value, "own_memory") == Json(true),
          .idle_bytes = integer(value, "idle_bytes"),
          .resident_bytes = integer(value, "resident_bytes"),
          .resident_peak_bytes = integer(value, "resident_peak_bytes"),
          .uncounted_bytes = integer(value, "uncounted_bytes"),
          .available_bytes = integer(value, "available_bytes")};
}

}  // namespace lockstep
