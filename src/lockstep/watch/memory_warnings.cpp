#include "lockstep/watch/memory_warnings.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/watch/memory_summary.h"

namespace lockstep {
namespace {

constexpr int kTimesBeforeRanksAreCompared = 5;
constexpr double kShare = 0.05;
constexpr int64_t kLeastBytes = 16 << 20;

bool matters(int64_t more, int64_t less) {
  return more - less > kLeastBytes && static_cast<double>(more) > static_cast<double>(less) * (1 + kShare);
}

std::string percent_above(int64_t more, int64_t less) {
  return fmt::format("{:.0f}% more", 100.0 * (static_cast<double>(more) / static_cast<double>(less) - 1));
}

}  // namespace

std::vector<std::string> MemoryWarnings::add(const MemoryMeasured& memory) {
  ++times_;
  std::vector<std::string> out;
  if (!told_uneven_ && (memory.last || times_ >= kTimesBeforeRanksAreCompared)) out.push_back(uneven(memory));
  if (!told_above_) out.push_back(above_forecast(memory));
  std::erase(out, "");
  return out;
}

std::string MemoryWarnings::uneven(const MemoryMeasured& memory) {
  for (const DevicePeak& high : highest_peaks(memory)) {
    const auto bytes_of = [&](const RankMemory& rank) {
      int64_t bytes = high.measured;  // of a rank without the device
      const auto devices = rank.since_start.everything();
      if (high.index < devices.size()) bytes = devices[high.index]->peak_bytes();
      return bytes;
    };
    const auto least = std::ranges::min_element(memory.ranks, {}, bytes_of);
    if (!matters(high.measured, bytes_of(*least))) continue;
    told_uneven_ = true;
    const std::string& most_batch = memory.ranks[static_cast<size_t>(high.rank)].since_start.batch;
    const std::string& least_batch = least->since_start.batch;
    return fmt::format("ranks differ in memory on {}: rank {} needed {}, {} than rank {} with {}; {}", high.device,
                       high.rank, format_bytes(high.measured), percent_above(high.measured, bytes_of(*least)),
                       least - memory.ranks.begin(), format_bytes(bytes_of(*least)),
                       most_batch == least_batch
                           ? fmt::format("their largest batches are alike ({}), so what they hold differs", most_batch)
                           : fmt::format("their batches differ: rank {} had {}, rank {} {}", high.rank, most_batch,
                                         least - memory.ranks.begin(), least_batch));
  }
  return "";
}

std::string MemoryWarnings::above_forecast(const MemoryMeasured& memory) {
  for (const DevicePeak& peak : highest_peaks(memory)) {
    if (peak.predicted == 0 || !matters(peak.measured, peak.predicted)) continue;
    told_above_ = true;
    return fmt::format(
        "{} needed {} on rank {} in {}{}, {} than the {} that were predicted for {}; its largest batch was {}",
        peak.device, format_bytes(peak.measured), peak.rank, peak.phase, peak.at.empty() ? "" : " at " + peak.at,
        percent_above(peak.measured, peak.predicted), format_bytes(peak.predicted), memory.predicted.batch,
        memory.ranks[static_cast<size_t>(peak.rank)].since_start.batch);
  }
  return "";
}

}  // namespace lockstep
