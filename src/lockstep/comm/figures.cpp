#include "lockstep/comm/figures.h"

#include <algorithm>
#include <iterator>

namespace lockstep {
namespace {

constexpr std::string_view kOtherLabels = "other labels";

int64_t ns_of(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count();
}

}  // namespace

void CallCost::launched(Clock::duration took) {
  exposed += took;
  times.busy += took;
}

void CallCost::ended(Clock::duration took, const TransportTimes& after_launch) {
  exposed += took;
  times.busy += after_launch.busy;
  times.late += after_launch.late;
  times.busy_told = after_launch.busy_told;
  times.late_told = after_launch.late_told;
}

size_t Figures::Hash::operator()(const KeyView& key) const {
  return std::hash<std::string_view>()(key.label) ^ static_cast<size_t>(key.op) * 0x9E3779B97F4A7C15ULL;
}

template <typename Left, typename Right>
bool Figures::Same::operator()(const Left& left, const Right& right) const {
  const KeyView a = view(left), b = view(right);
  return a.op == b.op && a.label == b.label;
}

/// A call is busy at least as long as the rank stands in it.
void LabelFigures::add(const CallCost& cost) {
  const int64_t exposed = ns_of(cost.exposed);
  calls += 1;
  bytes += cost.bytes;
  exposed_ns += exposed;
  busy_ns += std::max(exposed, ns_of(cost.times.busy));
  late_ns += ns_of(cost.times.late);
  busy_told = busy_told && cost.times.busy_told;
  late_told = late_told && cost.times.late_told;
}

size_t Figures::line_of(Op op, std::string_view label) {
  if (const auto found = known_.find(KeyView{op, label}); found != known_.end()) return found->second;
  if (known_.size() >= kMostLines && label != kOtherLabels) return line_of(op, kOtherLabels);
  const std::lock_guard lock(mutex_);
  lines_.push_back({.op = op, .label = std::string(label)});
  known_.emplace(Key{op, std::string(label)}, lines_.size() - 1);
  return lines_.size() - 1;
}

void Figures::add(size_t line, const CallCost& cost) {
  const std::lock_guard lock(mutex_);
  lines_[line].add(cost);
}

std::vector<LabelFigures> Figures::lines() const {
  const std::lock_guard lock(mutex_);
  std::vector<LabelFigures> ended;
  std::copy_if(lines_.begin(), lines_.end(), std::back_inserter(ended),
               [](const LabelFigures& line) { return line.calls > 0; });
  return ended;
}

}  // namespace lockstep
