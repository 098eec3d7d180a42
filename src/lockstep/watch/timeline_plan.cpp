#include "lockstep/watch/timeline_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

constexpr size_t kShownCalls = 200, kMostBars = 16000;
constexpr ptrdiff_t kCallsBeforeMarked = 12;
constexpr int kLanes = 4;
constexpr double kClockFarOff = 60, kLongestWindow = 86400;

/// The moment at which the row was read, by the wall clock. One offset a host, so that its ranks stay in order.
int64_t read_at_ns(const std::vector<Standing>& rows, const RankReport& report) {
  const auto first = std::find_if(rows.begin(), rows.end(), [&](const Standing& row) {
    return row.sample->node == report.node && row.sample->host == report.host;
  });
  return static_cast<int64_t>(static_cast<uint64_t>(report.read_ns) +
                              static_cast<uint64_t>(first->sample->realtime_offset_ns));
}

/// For each row the seconds from the moment of its reading to the end of the record, at most 0.
std::vector<double> read_moments(const std::vector<Standing>& rows) {
  std::vector<int64_t> read;
  read.reserve(rows.size());
  for (const auto& row : rows) read.push_back(read_at_ns(rows, *row.sample));
  if (read.empty()) return {};
  std::vector<int64_t> sorted = read;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  std::vector<double> moments;
  for (const int64_t moment : read) {
    const double apart = seconds_from(moment, *middle);
    moments.push_back(std::abs(apart) < kClockFarOff ? apart : 0);
  }
  const double end = *std::max_element(moments.begin(), moments.end());
  for (double& moment : moments) moment -= end;
  return moments;
}

TimelineRow row_of(const Standing& standing, double read_moment, const Comparison& marked) {
  const RankReport& report = *standing.sample;
  TimelineRow row{.standing = standing};
  const auto moment = [&](int64_t ns) { return read_moment + std::min(0.0, seconds_from(ns, report.read_ns)); };
  row.last_seen = moment(last_seen_ns(report));
  for (const auto& group : report.groups) {
    for (const auto& record : group.tail) {
      Bar bar{.from = moment(record.entered_ns), .open = !record.over(), .group = &group, .record = &record};
      bar.to = std::max(bar.from, bar.open ? row.last_seen : moment(record.done_ns));
      bar.marked = marked.seq == record.seq && marked.group == group.name;
      row.has_marked |= bar.marked;
      row.bars.push_back(bar);
    }
  }
  std::stable_sort(row.bars.begin(), row.bars.end(), [](const Bar& a, const Bar& b) { return a.from < b.from; });
  return row;
}

/// The latest moment from which on every row shows enough, the marked call and those just before it included.
double window_start(const std::vector<TimelineRow>& rows) {
  double start = -kLongestWindow;
  bool any = false;
  for (const auto& row : rows) {
    if (row.bars.empty()) continue;
    const double first = row.bars[row.bars.size() - std::min(row.bars.size(), kShownCalls)].from;
    start = any ? std::max(start, first) : first;
    any = true;
  }
  if (!any) return -1;
  for (const auto& row : rows) {
    if (row.bars.empty()) continue;
    start = std::min(start, row.bars.back().from);
    const auto marked = std::find_if(row.bars.begin(), row.bars.end(), [](const Bar& bar) { return bar.marked; });
    if (marked == row.bars.end()) continue;
    start = std::min(start, (marked - std::min(kCallsBeforeMarked, marked - row.bars.begin()))->from);
  }
  return std::max(start, -kLongestWindow);
}

/// Calls that overlap in time get lanes of their own, as long as there are any.
void pack(TimelineRow& row) {
  std::array<double, kLanes> free_at{};
  free_at.fill(-2 * kLongestWindow);
  for (auto& bar : row.bars) {
    int lane = 0;
    while (lane < kLanes && free_at[static_cast<size_t>(lane)] > bar.from) ++lane;
    if (lane == kLanes) {
      lane = static_cast<int>(std::min_element(free_at.begin(), free_at.end()) - free_at.begin());
    }
    bar.lane = lane;
    free_at[static_cast<size_t>(lane)] = std::max(free_at[static_cast<size_t>(lane)], bar.to);
    row.num_lanes = std::max(row.num_lanes, lane + 1);
  }
}

}  // namespace

TimelinePlan plan_timeline(const std::vector<Standing>& standings, const Comparison& marked) {
  std::vector<TimelineRow> rows;
  const auto moments = read_moments(standings);
  size_t num_recorded = 0, num_shown = 0;
  for (size_t i = 0; i < standings.size(); ++i) {
    rows.push_back(row_of(standings[i], moments[i], marked));
    num_recorded += rows.back().bars.size();
  }
  const double start = window_start(rows);
  const size_t most = std::max(kMostBars / std::max<size_t>(rows.size(), 1), kShownCalls);
  std::vector<double> events;
  for (auto& row : rows) {
    std::erase_if(row.bars, [&](const Bar& bar) { return bar.to < start && !bar.marked; });
    const auto surplus = static_cast<ptrdiff_t>(row.bars.size() - std::min(row.bars.size(), most));
    row.bars.erase(row.bars.begin(), row.bars.begin() + surplus);
    num_shown += row.bars.size();
    for (const auto& bar : row.bars) events.insert(events.end(), {bar.from, bar.to});
    events.push_back(row.last_seen);
    pack(row);
  }
  return {.rows = std::move(rows),
          .scale = TimeScale(std::move(events), start, 0),
          .num_recorded = num_recorded,
          .num_shown = num_shown};
}

}  // namespace lockstep
