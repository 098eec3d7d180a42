#include "lockstep/watch/memory_growth.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/guard/rank_set.h"

namespace lockstep {
namespace {

constexpr size_t kFewest = 15, kMost = 45;  // points; thirds of an odd number of them
constexpr double kLeastShare = 0.02;
constexpr double kLeastBytes = 16 << 20;
constexpr double kDeviations = 4.5;  // a run is judged at every record: what is one in a hundred once would come

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> slopes_of(const std::vector<MemoryPoint>& points) {
  std::vector<double> slopes;
  for (size_t i = 0; i < points.size(); ++i) {
    for (size_t j = i + 1; j < points.size(); ++j) {
      if (points[j].step == points[i].step) continue;
      slopes.push_back(static_cast<double>(points[j].bytes - points[i].bytes) /
                       static_cast<double>(points[j].step - points[i].step));
    }
  }
  std::ranges::sort(slopes);
  return slopes;
}

/// The lower end of the confidence interval of the median slope.
double lower_bound(const std::vector<double>& slopes, size_t num_points) {
  const auto n = static_cast<double>(num_points);
  const double spread = kDeviations * std::sqrt(n * (n - 1) * (2 * n + 5) / 18);
  const double index = (static_cast<double>(slopes.size()) - spread) / 2;
  return index < 0 ? slopes.front() : slopes[static_cast<size_t>(index)];
}

/// The use or phase that rose most between the two ends of the points.
std::string fastest(const std::deque<MemoryPoint>& points, BytesOfUses MemoryPoint::*of) {
  std::string name;
  int64_t most = 0;
  const MemoryPoint& first = points.front();
  for (const auto& [key, bytes] : points.back().*of) {
    const auto before = std::ranges::find(first.*of, key, &std::pair<std::string, int64_t>::first);
    const int64_t rise = bytes - (before == (first.*of).end() ? 0 : before->second);
    if (rise <= most) continue;
    most = rise;
    name = key;
  }
  return name;
}

MemoryPoint point_of(int64_t step, const DeviceAccount& device) {
  MemoryPoint out{.step = step, .bytes = device.alive, .by_use = device.alive_by_use, .peaks = {}};
  for (const auto& phase : device.phases) out.peaks.emplace_back(phase.phase, phase.bytes);
  return out;
}

}  // namespace

std::optional<Trend> growth_of(const std::deque<MemoryPoint>& points) {
  if (points.size() < kFewest) return std::nullopt;
  const size_t fit = std::min(points.size(), kMost) / 3;
  const size_t third = fit % 2 == 1 ? fit : fit - 1;
  const std::vector<MemoryPoint> last(points.end() - static_cast<std::ptrdiff_t>(3 * third), points.end());
  const auto level = [&](size_t part) {
    std::vector<double> bytes;
    for (size_t i = part * third; i < (part + 1) * third; ++i) bytes.push_back(static_cast<double>(last[i].bytes));
    return median(std::move(bytes));
  };
  const double low = level(0), middle = level(1), high = level(2);
  const double clear = (high - low) / 4;
  if (!(clear > 0) || middle - low < clear || high - middle < clear) return std::nullopt;
  const std::vector<double> slopes = slopes_of(last);
  if (slopes.empty() || lower_bound(slopes, last.size()) <= 0) return std::nullopt;
  const double slope = slopes[slopes.size() / 2];
  const double growth = slope * static_cast<double>(last.back().step - last.front().step);
  if (growth <= kLeastBytes || growth <= kLeastShare * low) return std::nullopt;
  return Trend{.bytes_per_step = slope, .since_step = last.front().step, .growth = static_cast<int64_t>(growth)};
}

std::vector<std::string> MemoryGrowth::add(const MemoryMeasured& memory) {
  for (size_t rank = 0; rank < memory.ranks.size(); ++rank) {
    const RankMemory& one = memory.ranks[rank];
    const auto remember = [&](size_t device, MemoryPoint point) {
      auto& points = points_[{device, static_cast<int>(rank)}];
      points.push_back(std::move(point));
      if (points.size() > kMost) points.pop_front();
    };
    remember(kBesideTensors, {.step = memory.step, .bytes = one.uncounted_bytes, .by_use = {}, .peaks = {}});
    const auto devices = one.since_last.everything();
    for (size_t i = 0; i < devices.size(); ++i) remember(i, point_of(memory.step, *devices[i]));
  }
  std::vector<std::string> out;
  std::set<size_t> devices;
  for (const auto& entry : points_) devices.insert(entry.first.first);
  for (const size_t device : devices) {
    if (told_.contains(device)) continue;
    const auto growing = growing_at(device);
    if (growing.empty()) continue;
    told_.insert(device);
    out.push_back(tell(device, growing, memory));
  }
  return out;
}

std::vector<MemoryGrowth::Growing> MemoryGrowth::growing_at(size_t device) const {
  std::vector<Growing> out;
  for (auto it = points_.lower_bound({device, 0}); it != points_.end() && it->first.first == device; ++it) {
    if (const auto trend = growth_of(it->second)) out.push_back({it->first.second, *trend});
  }
  return out;
}

std::string MemoryGrowth::tell(size_t device, const std::vector<Growing>& growing, const MemoryMeasured& memory) const {
  RankSet ranks;
  for (const auto& one : growing) ranks.add(one.rank);
  const Growing& worst =
      *std::ranges::max_element(growing, {}, [](const Growing& g) { return g.trend.bytes_per_step; });
  const auto& points = points_.at({device, worst.rank});
  const RankMemory& rank = memory.ranks[static_cast<size_t>(worst.rank)];
  int64_t room = rank.available_bytes;
  std::string what = "what the process holds beside tensors", where;
  std::string now = format_bytes(rank.resident_bytes) + " resident";
  if (device != kBesideTensors) {
    const DeviceAccount& account = *rank.since_last.everything()[device];
    if (account.capacity > 0) room = account.capacity - account.peak_bytes();
    const std::string use = fastest(points, &MemoryPoint::by_use), phase = fastest(points, &MemoryPoint::peaks);
    now = format_bytes(account.alive);
    what = (use.empty() ? "memory" : use) + " on " + account.name;
    if (!phase.empty()) where = fmt::format(", in the peak of {} too", phase);
  }
  std::string text =
      fmt::format("memory grows and does not come back: {} of {}{}, {} more a step, {} more since step {} ({} now)",
                  what, ranks.phrase(), where, format_bytes(static_cast<int64_t>(worst.trend.bytes_per_step)),
                  format_bytes(worst.trend.growth), worst.trend.since_step, now);
  if (room <= 0) return text;
  const auto steps = static_cast<int64_t>(static_cast<double>(room) / worst.trend.bytes_per_step);
  return text + fmt::format("; at this rate it is full after about {} more steps", format_count(steps));
}

}  // namespace lockstep
