#include "lockstep/plan/auto_map.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/block_ranges.h"
#include "lockstep/plan/level.h"
#include "lockstep/plan/pipeline.h"
#include "lockstep/plan/split.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<std::string_view, MapKind>, 4> kWords{{{"balanced", MapKind::kBalanced},
                                                                      {"auto", MapKind::kBalanced},
                                                                      {"balanced_low_0", MapKind::kBalancedLow0},
                                                                      {"sequential", MapKind::kSequential}}};

using Limits = std::vector<DeviceLimit>;

/// A fixed range of blocks before and behind those that are balanced.
struct Ends {
  int front = 0;  // blocks on the first device (balanced_low_0)
  int back = 0;   // blocks on the CPU
};

class MapMaker {
 public:
  MapMaker(std::span<const BlockCost> costs, std::span<const DeviceLimit> limits, const AutoMapOptions& options)
      : costs_(costs), limits_(limits.begin(), limits.end()), options_(options) {
    for (const auto& limit : limits) {
      if (limit.device == kCpuDevice) {
        cpu_ = limit;
      } else if (limit.bytes > 0) {
        accelerators_.push_back(limit);
      }
    }
    check(!costs.empty(), "a device map of a model with blocks");
  }

  AutoMap make() {
    if (accelerators_.empty()) {
      if (!cpu_) throw usage_error(name() + ": no device has any memory to use", "see --max_memory");
      return required(judged(std::vector<int>(costs_.size(), kCpuDevice), {}));
    }
    if (options_.kind == MapKind::kSequential) return sequential();
    if (options_.kind == MapKind::kBalancedLow0 && accelerators_.size() > 1) return low_first();
    return required(with_cpu([&](int back) { return balanced(accelerators_, {.back = back}); }));
  }

 private:
  int blocks() const { return static_cast<int>(costs_.size()); }
  std::string name() const { return fmt::format("--device_map {}", map_name(options_.kind)); }

  AutoMap judged(std::vector<int> devices, std::vector<std::vector<StateSlice>> slices) const {
    AutoMap map{.devices = std::move(devices), .slices = std::move(slices), .loads = {}};
    if (map.slices.empty()) map.slices = level_movable(costs_, map.devices, {}, {});
    map.loads = device_loads(costs_, map.devices, limits_, options_.micro_batches, map.slices);
    return map;
  }

  AutoMap required(AutoMap map) const {
    if (fits(map.loads, limits_)) return map;
    throw UserError(
        ExitCode::kMemory,
        fmt::format("{}: the model does not fit on its devices\n{}", name(), load_table(map.loads, limits_)),
        "use more devices, shard over more ranks (--deepspeed zero3), a shorter --max_length or smaller "
        "batch, --offload optimizer, or let the CPU take the rest: --max_memory \"0:…,cpu:64GiB\"");
  }

  SplitProblem problem(const Limits& devices, Ends ends, bool count_movable) const {
    return {.costs = costs_,
            .begin = ends.front,
            .end = blocks() - ends.back,
            .capacities = capacities_of(devices),
            .micro_batches = options_.micro_batches,
            .stages_behind = ends.back > 0 ? 1 : 0,
            .count_movable = count_movable};
  }

  AutoMap split_over(const Limits& devices, Ends ends, bool count_movable) const {
    return cut_at(*best_split(problem(devices, ends, count_movable)), devices, ends);
  }

  AutoMap cut_at(const std::vector<int>& cuts, const Limits& devices, Ends ends) const {
    std::vector<int> placed(costs_.size(), kCpuDevice);
    std::fill_n(placed.begin(), ends.front, accelerators_[0].device);
    int begin = ends.front;
    for (size_t d = 0; d < devices.size(); ++d) {
      std::fill(placed.begin() + begin, placed.begin() + cuts[d], devices[d].device);
      begin = cuts[d];
    }
    auto slices = options_.level ? level_movable(costs_, placed, devices, {.micro_batches = options_.micro_batches})
                                 : std::vector<std::vector<StateSlice>>();
    return judged(std::move(placed), std::move(slices));
  }

  /// Over these devices, or over fewer when they do not fit otherwise. What does not fit at all is the first try.
  AutoMap balanced(Limits devices, Ends ends) const {
    const auto free = static_cast<size_t>(blocks() - ends.front - ends.back);
    while (devices.size() > free) drop_smallest(devices);
    if (devices.empty()) return judged(ends_alone(ends), {});
    std::optional<AutoMap> first;
    for (; !devices.empty(); drop_smallest(devices)) {
      AutoMap map = split_over(devices, ends, true);
      if (options_.level) {
        AutoMap other = split_over(devices, ends, false);
        if (heights(other, accelerators_).second < heights(map, accelerators_).second * kClearlyLower)
          map = std::move(other);
      }
      if (devices.size() > 1) make_even(map, devices, ends);
      if (fits(map.loads, limits_)) return map;
      if (!first) first = std::move(map);
      if (all_equal(devices)) break;
    }
    return *first;
  }

  /// The smallest and the largest peak of these devices, in parts of what they have.
  static std::pair<double, double> heights(const AutoMap& map, const Limits& devices) {
    const std::vector<double> capacities = capacities_of(devices);
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (size_t d = 0; d < devices.size(); ++d) {
      const auto load = std::ranges::find(map.loads, devices[d].device, &DeviceLoad::device);
      least = std::min(least, static_cast<double>(load->peak()) / capacities[d]);
      most = std::max(most, static_cast<double>(load->peak()) / capacities[d]);
    }
    return {least, most};
  }

  /// Another cut in the place of this one, when this one is not even and that one is and fits; where none is even, one
  /// that is more so and costs the fullest device little.
  void make_even(AutoMap& map, const Limits& devices, Ends ends) const {
    const auto [least, most] = heights(map, devices);
    if (most <= least * kEven) return;
    auto even = most_even_split(problem(devices, ends, true));
    if (even && even->ratio > kEven) even = most_even_split(problem(devices, ends, true), kLittleHigher);
    if (!even) return;
    AutoMap other = cut_at(even->ends, devices, ends);
    const auto [lowest, highest] = heights(other, devices);
    if (highest * least >= most * lowest) return;
    if (fits(other.loads, limits_) || !fits(map.loads, limits_)) map = std::move(other);
  }

  std::vector<int> ends_alone(Ends ends) const {
    std::vector<int> placed(costs_.size(), kCpuDevice);
    std::fill_n(placed.begin(), ends.front, accelerators_[0].device);
    return placed;
  }

  static bool all_equal(const Limits& devices) {
    return std::ranges::all_of(devices, [&](const auto& limit) { return limit.bytes == devices[0].bytes; });
  }

  static void drop_smallest(Limits& devices) {
    const auto least = std::min_element(devices.rbegin(), devices.rend(),
                                        [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    devices.erase(std::next(least).base());
  }

  /// The smallest count in [0, most] with which what `make` gives fits on all devices but `last_resort`, by bisection;
  /// else what it gives for 0. The last resort takes what others cannot hold, whether it can or not.
  template <typename Make>
  AutoMap fewest(int most, int last_resort, Make make) const {
    Limits judges = limits_;
    std::erase_if(judges, [&](const auto& limit) { return limit.device == last_resort; });
    AutoMap best = make(0);
    if (fits(best.loads, judges)) return best;
    for (int low = 1, high = most; low <= high;) {
      const int middle = low + (high - low) / 2;
      AutoMap map = make(middle);
      if (fits(map.loads, judges)) {
        best = std::move(map);
        high = middle - 1;
      } else {
        low = middle + 1;
      }
    }
    return best;
  }

  template <typename Make>
  AutoMap with_cpu(Make make) const {
    return fewest(cpu_ ? blocks() : 0, kCpuDevice, make);
  }

  AutoMap low_first() const {
    const Limits others(accelerators_.begin() + 1, accelerators_.end());
    return required(with_cpu([&](int back) {
      return fewest(blocks() - back, accelerators_[0].device,
                    [&](int front) { return balanced(others, {.front = front, .back = back}); });
    }));
  }

  /// Each device as full as it may be when the pipeline has so many stages; what is left over stands on the last one.
  AutoMap filled(const Limits& order, const BlockRanges& ranges, int stages) const {
    std::vector<int> placed(costs_.size(), order.back().device);
    size_t begin = 0;
    int stage = 0;
    for (const auto& limit : order) {
      size_t end = begin;
      while (end < costs_.size() && stage < stages) {
        const int in_flight = micro_batches_in_flight(stage, stages, options_.micro_batches);
        if (ranges.bytes(begin, end + 1, in_flight) > limit.bytes) break;
        placed[end++] = limit.device;
      }
      stage += end > begin ? 1 : 0;
      begin = end;
    }
    const bool left_over = begin < costs_.size();
    return left_over && stages < static_cast<int>(order.size()) ? AutoMap() : judged(std::move(placed), {});
  }

  AutoMap sequential() const {
    Limits order = accelerators_;
    if (cpu_) order.push_back(*cpu_);
    const BlockRanges ranges(costs_, 0, blocks(), true);
    for (int stages = 1; stages < static_cast<int>(order.size()); ++stages) {
      AutoMap map = filled(order, ranges, stages);
      if (!map.devices.empty() && fits(map.loads, limits_)) return map;
    }
    return required(filled(order, ranges, static_cast<int>(order.size())));
  }

  static constexpr double kLittleHigher = 1.05;   // what the fullest device may need more, for a more even map
  static constexpr double kClearlyLower = 0.999;  // else the split that moves less

  std::span<const BlockCost> costs_;
  Limits limits_, accelerators_;
  std::optional<DeviceLimit> cpu_;
  AutoMapOptions options_;
};

}  // namespace

bool is_map_word(std::string_view word) {
  return std::ranges::any_of(kWords, [&](const auto& entry) { return entry.first == word; });
}

MapKind map_kind(std::string_view word) {
  std::vector<std::string> words;
  for (const auto& [spelling, kind] : kWords) {
    if (spelling == word) return kind;
    words.emplace_back(spelling);
  }
  std::string lower(word);
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::string near = nearest_name(lower, words);
  throw usage_error(
      fmt::format("--device_map {}: expected auto, balanced, balanced_low_0, sequential or a JSON file", word),
      near.empty() ? "" : "did you mean " + near + "?");
}

std::string_view map_name(MapKind kind) {
  return std::ranges::find(kWords, kind, &std::pair<std::string_view, MapKind>::second)->first;
}

AutoMap make_auto_map(std::span<const BlockCost> costs, std::span<const DeviceLimit> limits,
                      const AutoMapOptions& options) {
  return MapMaker(costs, limits, options).make();
}

double most_even_ratio(std::span<const BlockCost> costs, int devices, int micro_batches) {
  const auto even = most_even_split({.costs = costs,
                                     .end = static_cast<int>(costs.size()),
                                     .capacities = std::vector<double>(static_cast<size_t>(devices), 1.0),
                                     .micro_batches = micro_batches});
  return even ? even->ratio : std::numeric_limits<double>::infinity();
}

}  // namespace lockstep
