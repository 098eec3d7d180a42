#include "lockstep/guard/straggling.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

constexpr int64_t kSteps = 3;
constexpr auto kSeconds = std::chrono::seconds(8);
constexpr double kFactor = 2, kLeastExcess = 0.02;  // of seconds per step
constexpr size_t kMaxWindow = 64;                   // steps after which the account begins anew

StepCost cost_between(const Pace& first, const Pace& last) {
  StepCost cost;
  const auto steps = static_cast<double>(std::max<int64_t>(1, last.steps - first.steps)) * 1e9;
  for (size_t i = 0; i < kPhases; ++i) {
    cost.phases[i] = (static_cast<double>(last.phase_ns[i]) - static_cast<double>(first.phase_ns[i])) / steps;
  }
  cost.busy = std::accumulate(cost.phases.begin(), cost.phases.end(), 0.0);
  cost.waiting = (static_cast<double>(last.waiting_ns) - static_cast<double>(first.waiting_ns)) / steps;
  return cost;
}

/// The lower middle: of two, the quicker one is the usual.
template <typename T, typename Key>
const T& lower_median(std::vector<T>& all, Key key) {
  const size_t middle = (all.size() - 1) / 2;
  std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(middle), all.end(),
                   [&](const T& a, const T& b) { return key(a) < key(b); });
  return all[middle];
}

/// Where the excess arises: data, compute or communication.
std::string worst_phase(const StepCost& slow, const StepCost& usual) {
  const auto excess = [&](Phase phase) {
    return slow.phases[static_cast<size_t>(phase)] - usual.phases[static_cast<size_t>(phase)];
  };
  const double data = excess(Phase::kData) + excess(Phase::kLoad);
  const double compute = excess(Phase::kForward) + excess(Phase::kBackward) + excess(Phase::kStep) +
                         excess(Phase::kEvaluate) + excess(Phase::kGenerate);
  const double rest = excess(Phase::kSave) + excess(Phase::kStart) + excess(Phase::kEnd);
  if (data >= compute && data >= rest) return "data";
  return compute >= rest ? "compute" : "saving";
}

Json cost_json(const StepCost& cost) {
  return {cost.busy, cost.waiting, std::vector<double>(cost.phases.begin(), cost.phases.end())};
}

std::optional<StepCost> cost_from(const Json& json) {
  const bool whole = json.is_array() && json.size() == 3 && json[0].is_number() && json[1].is_number() &&
                     json[2].is_array() && json[2].size() == kPhases;
  if (!whole) return std::nullopt;
  StepCost cost{.busy = json[0].get<double>(), .waiting = json[1].get<double>()};
  for (size_t i = 0; i < kPhases; ++i) {
    if (!json[2][i].is_number()) return std::nullopt;
    cost.phases[i] = json[2][i].get<double>();
  }
  return cost;
}

}  // namespace

Json to_json(const NodePace& pace) {
  return {{"ranks", pace.ranks},
          {"slowest_rank", pace.slowest_rank},
          {"median", cost_json(pace.median)},
          {"slowest", cost_json(pace.slowest)}};
}

std::optional<NodePace> node_pace_from_json(const Json& json) {
  const auto is_count = [&](const char* name) { return json.contains(name) && json[name].is_number_integer(); };
  if (!json.is_object() || !is_count("ranks") || !is_count("slowest_rank") || !json.contains("median") ||
      !json.contains("slowest")) {
    return std::nullopt;
  }
  const auto median = cost_from(json["median"]), slowest = cost_from(json["slowest"]);
  if (!median || !slowest) return std::nullopt;
  return NodePace{.ranks = json["ranks"].get<int>(),
                  .slowest_rank = json["slowest_rank"].get<int>(),
                  .median = *median,
                  .slowest = *slowest};
}

std::string Straggler::text() const {
  return fmt::format("rank {} is {:.1f}x slower than the others in {}: {} a step beside {}", rank, factor, phase,
                     format_duration(seconds), format_duration(usual_seconds));
}

void Straggling::observe(int rank, const Pace& told, Clock::time_point now) {
  Track& track = tracks_[rank];
  Pace pace = told;
  pace.steps = bounded(told.steps);
  const bool whole_window = pace.steps - track.first.steps > static_cast<int64_t>(kMaxWindow);
  if (!track.begun && pace.steps >= 1) {  // the first step warms up
    track = {.first = pace, .last = pace, .since = now, .begun = true};
  } else if (track.begun && whole_window) {
    track.first = track.last;
    track.since = now;
  }
  track.last = pace;
}

std::optional<NodePace> Straggling::summary(Clock::time_point now) const {
  std::vector<std::pair<int, StepCost>> costs;
  for (const auto& [rank, track] : tracks_) {
    const int64_t steps = track.last.steps - track.first.steps;
    if (!track.begun || steps < 1 || (steps < kSteps && now - track.since < kSeconds)) return std::nullopt;
    costs.emplace_back(rank, cost_between(track.first, track.last));
  }
  if (costs.empty()) return std::nullopt;
  const auto busy = [](const auto& one) { return one.second.busy; };
  const auto slowest =
      *std::max_element(costs.begin(), costs.end(), [&](const auto& a, const auto& b) { return busy(a) < busy(b); });
  const StepCost median = lower_median(costs, busy).second;
  return NodePace{.ranks = static_cast<int>(costs.size()),
                  .slowest_rank = slowest.first,
                  .median = median,
                  .slowest = slowest.second};
}

std::optional<Straggler> Straggling::judge(const std::vector<NodePace>& nodes, Clock::time_point now) {
  int ranks = 0;
  std::vector<NodePace> sorted = nodes;
  for (const auto& node : nodes) ranks += node.ranks;
  if (ranks < 2) return std::nullopt;
  const StepCost usual = lower_median(sorted, [](const NodePace& node) { return node.median.busy; }).median;
  const auto slowest = std::max_element(
      nodes.begin(), nodes.end(), [](const NodePace& a, const NodePace& b) { return a.slowest.busy < b.slowest.busy; });
  const double seconds = slowest->slowest.busy;
  if (seconds < kFactor * usual.busy || seconds - usual.busy < kLeastExcess) return std::nullopt;
  const std::string phase = worst_phase(slowest->slowest, usual);
  const bool same = slowest->slowest_rank == told_rank_ && phase == told_phase_;
  if (same && now < next_telling_) return std::nullopt;
  pause_ = same ? pause_ * 3 : Clock::duration(std::chrono::seconds(30));
  next_telling_ = now + pause_;
  told_rank_ = slowest->slowest_rank;
  told_phase_ = phase;
  return Straggler{.rank = told_rank_,
                   .factor = seconds / std::max(usual.busy, 1e-6),
                   .seconds = seconds,
                   .usual_seconds = usual.busy,
                   .phase = phase};
}

}  // namespace lockstep
