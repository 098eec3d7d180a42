#include "lockstep/watch/time_scale.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr size_t kMaxBreaks = 4, kGapsWorthABreak = 6;
constexpr double kDominates = 0.5, kDominatesAtEnd = 0.2;  // longer than this share of all the rest: cut
constexpr double kBreakWidth = 0.12;                       // of all the rest

/// Indices of the gaps that are cut, ascending: from the longest on, those that would dwarf all shorter ones.
std::vector<size_t> long_gaps(const std::vector<double>& gaps) {
  std::vector<size_t> by_length(gaps.size());
  std::iota(by_length.begin(), by_length.end(), size_t{0});
  std::stable_sort(by_length.begin(), by_length.end(), [&](size_t a, size_t b) { return gaps[a] > gaps[b]; });
  double shown = std::accumulate(gaps.begin(), gaps.end(), 0.0);
  std::vector<size_t> cut;
  for (const size_t gap : by_length) {
    if (cut.size() == kMaxBreaks || gaps.size() - cut.size() < kGapsWorthABreak) break;
    const double rest = shown - gaps[gap];
    const bool at_end = gap + 1 == gaps.size();  // where ranks wait for what does not come
    if (rest <= 0 || gaps[gap] <= (at_end ? kDominatesAtEnd : kDominates) * rest) continue;
    cut.push_back(gap);
    shown = rest;
  }
  std::sort(cut.begin(), cut.end());
  return cut;
}

/// The least of 1, 2, 5 times a power of ten that is not below `rough`.
double round_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double nice : {1.0, 2.0, 5.0}) {
    if (nice * power >= rough) return nice * power;
  }
  return 10 * power;
}

}  // namespace

TimeScale::TimeScale(std::vector<double> events, double from, double to) {
  if (!(to > from)) to = from + 1e-6;
  std::erase_if(events, [&](double moment) { return !(moment > from && moment < to); });
  events.push_back(from);
  events.push_back(to);
  std::sort(events.begin(), events.end());
  std::vector<double> gaps;
  for (size_t i = 1; i < events.size(); ++i) gaps.push_back(events[i] - events[i - 1]);
  const auto cut = long_gaps(gaps);
  double shown = to - from;
  for (const size_t gap : cut) shown -= gaps[gap];
  const double width = shown * (1 + kBreakWidth * static_cast<double>(cut.size()));
  knots_.push_back({from, 0});
  for (const size_t gap : cut) {
    const double begin = events[gap], end = events[gap + 1];
    const double at = knots_.back().at + (begin - knots_.back().seconds) / width;
    const double after = at + kBreakWidth * shown / width;
    breaks_.push_back({at, after, gaps[gap]});
    knots_.push_back({begin, at});
    knots_.push_back({end, after});
  }
  knots_.push_back({to, 1});
}

double TimeScale::at(double seconds) const {
  if (!(seconds > knots_.front().seconds)) return 0;
  if (seconds >= knots_.back().seconds) return 1;
  const auto next = std::upper_bound(knots_.begin(), knots_.end(), seconds,
                                     [](double moment, const Knot& knot) { return moment < knot.seconds; });
  const Knot &a = *(next - 1), &b = *next;
  return a.at + (b.at - a.at) * (seconds - a.seconds) / (b.seconds - a.seconds);
}

std::vector<TimeScale::Tick> TimeScale::ticks(int count) const {
  std::vector<Tick> all;
  for (size_t i = 1; i < knots_.size(); ++i) {
    const Knot &a = knots_[i - 1], &b = knots_[i];
    const bool is_break =
        std::any_of(breaks_.begin(), breaks_.end(), [&](const Break& one) { return one.from == a.at; });
    const int room = static_cast<int>((b.at - a.at) * count);
    if (is_break || room < 1) continue;
    const double step = round_step((b.seconds - a.seconds) / room);
    const double first = std::ceil(a.seconds / step);
    for (int n = 0; n <= room && (first + n) * step <= b.seconds; ++n) {
      const double moment = (first + n) * step;
      all.push_back({at(moment), moment});
    }
  }
  return all;
}

}  // namespace lockstep
