#include "lockstep/watch/memory_summary.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr size_t kMostRanks = 16;   // of a record
constexpr size_t kMostDevices = 8;  // of a summary

int64_t peak_of(const MemoryAccount& account) {
  int64_t most = 0;
  for (const auto* device : account.everything()) most = std::max(most, device->peak_bytes());
  return most;
}

std::vector<size_t> told_ranks(const MemoryMeasured& memory) {
  std::vector<size_t> ranks(memory.ranks.size());
  std::iota(ranks.begin(), ranks.end(), size_t{0});
  if (ranks.size() <= kMostRanks) return ranks;
  const auto [low, high] =
      std::ranges::minmax_element(ranks, {}, [&](size_t rank) { return peak_of(memory.ranks[rank].since_last); });
  return {std::min(*low, *high), std::max(*low, *high)};
}

Json recent_device(const DeviceAccount& device) {
  Json phases = Json::object();
  for (const auto& phase : device.phases) phases[phase.phase] = phase.bytes;
  return {{"name", device.name}, {"alive", device.alive}, {"peak", device.peak_bytes()}, {"phases", phases}};
}

}  // namespace

double DevicePeak::excess() const {
  return predicted > 0 ? static_cast<double>(measured) / static_cast<double>(predicted) - 1 : 0;
}

std::vector<DevicePeak> highest_peaks(const MemoryMeasured& memory) {
  std::vector<DevicePeak> out;
  const auto predicted = memory.predicted.everything();
  for (size_t rank = 0; rank < memory.ranks.size(); ++rank) {
    const auto devices = memory.ranks[rank].since_start.everything();
    for (size_t i = 0; i < devices.size(); ++i) {
      if (i == out.size()) {
        out.push_back({.device = devices[i]->name,
                       .index = i,
                       .predicted = i < predicted.size() ? predicted[i]->peak_bytes() : 0,
                       .measured = -1});
      }
      const PhaseMemory* peak = devices[i]->peak();
      const int64_t bytes = devices[i]->peak_bytes();
      if (bytes <= out[i].measured) continue;
      out[i].rank = static_cast<int>(rank);
      out[i].measured = bytes;
      out[i].phase = peak == nullptr ? "" : peak->phase;
      out[i].at = peak == nullptr ? "" : peak->at;
    }
  }
  return out;
}

std::vector<std::string> memory_summary(const MemoryMeasured& memory) {
  std::vector<std::string> lines;
  for (const DevicePeak& peak : highest_peaks(memory)) {
    if (peak.measured == 0) continue;
    if (lines.size() == kMostDevices) {
      lines.emplace_back("memory: the other devices stand in memory.json");
      break;
    }
    std::string line = "memory: " + peak.device;
    if (peak.predicted > 0) line += fmt::format(" predicted {},", format_bytes(peak.predicted));
    line += fmt::format(" measured {}", format_bytes(peak.measured));
    if (memory.ranks.size() > 1) line += fmt::format(" (rank {})", peak.rank);
    lines.push_back(std::move(line));
  }
  return lines;
}

Json memory_json(const MemoryMeasured& memory) {
  Json peaks = Json::array(), ranks = Json::array();
  for (const DevicePeak& peak : highest_peaks(memory)) {
    peaks.push_back({{"device", peak.device},
                     {"rank", peak.rank},
                     {"predicted", peak.predicted > 0 ? Json(peak.predicted) : Json()},
                     {"measured", peak.measured},
                     {"phase", peak.phase},
                     {"at", peak.at}});
  }
  for (const RankMemory& rank : memory.ranks) {
    Json one = as_json(rank);
    one.erase("since_last");
    ranks.push_back(std::move(one));
  }
  return {{"step", memory.step},
          {"predicted", memory.predicted.empty() ? Json() : as_json(memory.predicted)},
          {"peaks", peaks},
          {"ranks", ranks}};
}

Json memory_record(const MemoryMeasured& memory) {
  Json ranks = Json::array();
  for (const size_t rank : told_ranks(memory)) {
    const RankMemory& one = memory.ranks[rank];
    Json devices = Json::array();
    for (const auto* device : one.since_last.everything()) devices.push_back(recent_device(*device));
    ranks.push_back({{"rank", rank},
                     {"resident_bytes", one.resident_bytes},
                     {"uncounted_bytes", one.uncounted_bytes},
                     {"devices", devices}});
  }
  return {{kMemoryRecordKey, ranks}, {"global_step/max_steps", fmt::format("{}/{}", memory.step, memory.max_steps)}};
}

}  // namespace lockstep
