#include "lockstep/plan/level.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// How many movable bytes each device should hold, so that fixed + movable stand equally high.
std::vector<int64_t> targets(std::span<const DeviceLoad> loads, std::span<const DeviceLimit> limits) {
  const std::vector<double> capacities = capacities_of(limits);
  int64_t total = 0, room = 0;
  double low = 0, high = 0;
  for (size_t d = 0; d < limits.size(); ++d) {
    total += loads[d].movable;
    const int64_t free =
        limits[d].bytes == kNoLimit ? kNoLimit : std::max<int64_t>(0, limits[d].bytes - loads[d].fixed);
    room = free == kNoLimit || room == kNoLimit ? kNoLimit : room + free;
  }
  const bool limited = room >= total;  // else nothing fits anyhow: level it all the same
  for (size_t d = 0; d < limits.size(); ++d) {
    high = std::max(high, static_cast<double>(loads[d].fixed + total) / capacities[d]);
  }
  const auto held_at = [&](size_t d, double level) {
    const double level_bytes = level * capacities[d];
    const double top = limited ? std::min(level_bytes, static_cast<double>(limits[d].bytes)) : level_bytes;
    return std::max(int64_t{0}, static_cast<int64_t>(std::floor(top)) - loads[d].fixed);
  };
  for (int i = 0; i < 200 && low < high; ++i) {
    const double level = low + (high - low) / 2;
    int64_t held = 0;
    for (size_t d = 0; d < limits.size(); ++d) held += held_at(d, level);
    (held < total ? low : high) = level;
  }
  std::vector<int64_t> out(limits.size());
  for (size_t d = 0; d < limits.size(); ++d) out[d] = held_at(d, high);
  return out;
}

/// Moves ranges of movable bytes from devices that hold too much to those that hold too little.
class Leveller {
 public:
  Leveller(std::span<const BlockCost> costs, std::span<const int> devices, int64_t quantum)
      : costs_(costs), devices_(devices), quantum_(quantum), left_(costs.size()), slices_(costs.size()) {
    for (size_t i = 0; i < costs.size(); ++i) left_[i] = costs[i].movable;
  }

  void give(int device, int64_t surplus, std::vector<DeviceLoad>& needy) {
    std::vector<size_t> order;
    for (size_t i = 0; i < costs_.size(); ++i) {
      if (devices_[i] == device && left_[i] > 0) order.push_back(i);
    }
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return costs_[a].movable > costs_[b].movable; });
    for (const size_t block : order) {
      if (left_[block] <= surplus) surplus -= hand_out(block, left_[block], needy);
    }
    for (const size_t block : order) {
      if (surplus < quantum_) break;
      if (left_[block] > surplus) surplus -= hand_out(block, surplus, needy);
    }
  }

  std::vector<std::vector<StateSlice>> finish() {
    for (size_t i = 0; i < costs_.size(); ++i) {
      if (left_[i] > 0) slices_[i].insert(slices_[i].begin(), {devices_[i], 0, left_[i]});
      std::ranges::reverse(slices_[i].begin() + (left_[i] > 0 ? 1 : 0), slices_[i].end());
    }
    return std::move(slices_);
  }

 private:
  /// Up to so many bytes from the end of the block, to the first devices that need some; how many they were.
  int64_t hand_out(size_t block, int64_t bytes, std::vector<DeviceLoad>& needy) {
    int64_t& left = left_[block];
    const int64_t before = left;
    for (auto& taker : needy) {
      const int64_t wanted = std::min(bytes, taker.movable);
      const int64_t taken = wanted < left ? left - round_up(left - wanted) : wanted;
      if (taken <= 0) continue;
      left -= taken;
      bytes -= taken;
      taker.movable =
          wanted == taker.movable ? 0 : taker.movable - taken;  // less than a quantum is not asked for again
      slices_[block].push_back({taker.device, left, left + taken});
      if (bytes == 0 || left == 0) break;
    }
    return before - left;
  }

  int64_t round_up(int64_t bytes) const { return (bytes + quantum_ - 1) / quantum_ * quantum_; }

  std::span<const BlockCost> costs_;
  std::span<const int> devices_;
  int64_t quantum_;
  std::vector<int64_t> left_;
  std::vector<std::vector<StateSlice>> slices_;
};

}  // namespace

std::vector<double> capacities_of(std::span<const DeviceLimit> limits) {
  const bool known = std::ranges::all_of(limits, [](const auto& limit) { return limit.bytes != kNoLimit; });
  std::vector<double> out;
  for (const auto& limit : limits) out.push_back(known ? static_cast<double>(std::max<int64_t>(1, limit.bytes)) : 1.0);
  return out;
}

std::vector<std::vector<StateSlice>> level_movable(std::span<const BlockCost> costs, std::span<const int> devices,
                                                   std::span<const DeviceLimit> limits, const LevelOptions& options) {
  check(options.quantum > 0, "slices of at least a byte");
  std::vector<DeviceLoad> loads = device_loads(costs, devices, limits, options.micro_batches);
  loads.resize(limits.size());  // others keep what they have
  const std::vector<int64_t> wanted = targets(loads, limits);
  std::vector<DeviceLoad> needy;  // movable: how much more
  for (size_t d = 0; d < loads.size(); ++d) {
    if (wanted[d] > loads[d].movable) {
      needy.push_back({.device = loads[d].device, .movable = wanted[d] - loads[d].movable});
    }
  }
  Leveller leveller(costs, devices, options.quantum);
  for (size_t d = 0; d < loads.size(); ++d) {
    if (wanted[d] < loads[d].movable) leveller.give(loads[d].device, loads[d].movable - wanted[d], needy);
  }
  return leveller.finish();
}

}  // namespace lockstep
