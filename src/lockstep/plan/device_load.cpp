#include "lockstep/plan/device_load.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/pipeline.h"

namespace lockstep {
namespace {

int64_t limit_of(std::span<const DeviceLimit> limits, int device) {
  const auto found = std::ranges::find(limits, device, &DeviceLimit::device);
  return found == limits.end() ? kNoLimit : found->bytes;
}

/// Sums what the blocks of each device need.
class Loads {
 public:
  explicit Loads(std::span<const DeviceLimit> limits) {
    for (const auto& limit : limits) at(limit.device);
  }

  DeviceLoad& at(int device) {
    const auto found = std::ranges::find(loads_, device, &DeviceLoad::device);
    if (found != loads_.end()) return *found;
    return loads_.emplace_back(DeviceLoad{.device = device});
  }

  void add_block(int device, const BlockCost& cost, int in_flight) {
    at(device).fixed += cost.state + in_flight * cost.saved;
    work_[device] = std::max(work_[device], cost.work);
  }

  /// An owner's weights stand once on each other device that reads them.
  void add_tied(int device, int owner, int64_t bytes) {
    int64_t& held = tied_[{device, owner}];
    at(device).fixed += std::max<int64_t>(0, bytes - held);
    held = std::max(held, bytes);
  }

  std::vector<DeviceLoad> finish() {
    for (const auto& [device, bytes] : work_) at(device).fixed += bytes;
    return std::move(loads_);
  }

 private:
  std::vector<DeviceLoad> loads_;
  std::map<int, int64_t> work_;
  std::map<std::pair<int, int>, int64_t> tied_;
};

}  // namespace

std::vector<int> stages_of(std::span<const int> devices) {
  std::vector<int> stages;
  for (size_t i = 0; i < devices.size(); ++i) {
    stages.push_back(i == 0 ? 0 : stages.back() + (devices[i] == devices[i - 1] ? 0 : 1));
  }
  return stages;
}

std::vector<DeviceLoad> device_loads(std::span<const BlockCost> costs, std::span<const int> devices,
                                     std::span<const DeviceLimit> limits, int micro_batches,
                                     std::span<const std::vector<StateSlice>> slices) {
  check(costs.size() == devices.size(), "a device for every block");
  check(slices.empty() || slices.size() == costs.size(), "slices for every block, or for none");
  Loads loads(limits);
  const std::vector<int> stages = stages_of(devices);
  for (size_t i = 0; i < costs.size(); ++i) {
    loads.add_block(devices[i], costs[i], micro_batches_in_flight(stages[i], stages.back() + 1, micro_batches));
    if (costs[i].tied_to >= 0 && devices[static_cast<size_t>(costs[i].tied_to)] != devices[i]) {
      loads.add_tied(devices[i], costs[i].tied_to, costs[i].tied);
    }
    if (slices.empty()) loads.at(devices[i]).movable += costs[i].movable;
  }
  for (const auto& block : slices) {
    for (const StateSlice& slice : block) loads.at(slice.device).movable += slice.end - slice.begin;
  }
  return loads.finish();
}

bool fits(std::span<const DeviceLoad> loads, std::span<const DeviceLimit> limits) {
  return std::ranges::all_of(loads, [&](const auto& load) { return load.peak() <= limit_of(limits, load.device); });
}

std::string load_table(std::span<const DeviceLoad> loads, std::span<const DeviceLimit> limits) {
  std::string out = fmt::format("  {:<8}{:>12}{:>12}", "device", "needs", "has");
  for (const auto& load : loads) {
    const int64_t has = limit_of(limits, load.device);
    out += fmt::format("\n  {:<8}{:>12}{:>12}{}", device_name(load.device), format_bytes(load.peak()),
                       has == kNoLimit ? "-" : format_bytes(has),
                       load.peak() > has ? "  lacks " + format_bytes(load.peak() - has) : "");
  }
  return out;
}

std::string device_name(int device) { return device == kCpuDevice ? "cpu" : std::to_string(device); }

}  // namespace lockstep
