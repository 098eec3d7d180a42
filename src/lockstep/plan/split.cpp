#include "lockstep/plan/split.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "lockstep/plan/block_ranges.h"
#include "lockstep/plan/pipeline.h"

namespace lockstep {
namespace {

/// Tables over (stages that remain, first block that they take), filled from the last stage to the first.
class Search {
 public:
  /// Stages whose peak is below `floor` are not allowed.
  Search(const SplitProblem& problem, const BlockRanges& ranges, double floor = 0)
      : problem_(problem),
        stretches_(ranges),
        stages_(problem.capacities.size()),
        blocks_(ranges.size()),
        floor_(floor) {}

  /// Empty: no cut is allowed.
  std::vector<int> run() {
    Table largest = table(kInfinite);
    largest[0][blocks_] = 0;
    fill([&](size_t r, size_t i, size_t j, double peak) {
      largest[r][i] = std::min(largest[r][i], std::max(peak, largest[r - 1][j]));
    });
    const double bound = largest[stages_][0];
    if (bound == kInfinite) return {};
    const auto allowed = [&](size_t r, size_t j, double peak) { return peak <= bound && largest[r - 1][j] <= bound; };
    Table smallest = table(-1);
    smallest[0][blocks_] = kInfinite;
    fill([&](size_t r, size_t i, size_t j, double peak) {
      if (allowed(r, j, peak)) smallest[r][i] = std::max(smallest[r][i], std::min(peak, smallest[r - 1][j]));
    });
    std::vector<int> ends;
    size_t i = 0;
    for (size_t r = stages_; r > 0; --r) {
      size_t j = i + 1;
      while (!allowed(r, j, peak(r, i, j)) || std::min(peak(r, i, j), smallest[r - 1][j]) < smallest[stages_][0]) ++j;
      ends.push_back(problem_.begin + static_cast<int>(j));
      i = j;
    }
    return ends;
  }

  std::pair<double, double> extremes(const std::vector<int>& ends) const {
    double least = kInfinite, most = 0;
    size_t i = 0;
    for (size_t r = stages_; r > 0; --r) {
      const auto j = static_cast<size_t>(ends[stages_ - r] - problem_.begin);
      const double height = peak(r, i, j);
      least = std::min(least, height);
      most = std::max(most, height);
      i = j;
    }
    return {least, most};
  }

  /// All that a stage can need, in (above, below]; sorted.
  std::vector<double> peaks_between(double above, double below) const {
    std::vector<double> found;
    fill([&](size_t, size_t, size_t, double height) {
      if (height > above && height <= below) found.push_back(height);
    });
    std::ranges::sort(found);
    found.erase(std::unique(found.begin(), found.end()), found.end());
    return found;
  }

  size_t work() const { return stages_ * blocks_ * blocks_; }

 private:
  using Table = std::vector<std::vector<double>>;
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  Table table(double value) const { return Table(stages_ + 1, std::vector<double>(blocks_ + 1, value)); }

  /// Of blocks [i, j) as the stage behind which r - 1 of these stages remain.
  double peak(size_t r, size_t i, size_t j) const {
    const int behind = static_cast<int>(r) + problem_.stages_behind;
    const int in_flight = micro_batches_in_flight(0, behind, problem_.micro_batches);
    const double height = static_cast<double>(stretches_.bytes(i, j, in_flight)) / problem_.capacities[stages_ - r];
    return height < floor_ ? kInfinite : height;
  }

  template <typename Visit>
  void fill(Visit visit) const {
    for (size_t r = 1; r <= stages_; ++r) {
      const size_t before = stages_ - r, behind = r - 1;  // each takes a block at least
      const size_t last = r == stages_ ? 0 : blocks_ - r;
      for (size_t i = before; i <= last; ++i) {
        for (size_t j = behind == 0 ? blocks_ : i + 1; j <= blocks_ - behind; ++j) visit(r, i, j, peak(r, i, j));
      }
    }
  }

  const SplitProblem& problem_;
  const BlockRanges& stretches_;
  size_t stages_, blocks_;
  double floor_;
};

double ratio_of(std::pair<double, double> extremes) {
  return extremes.first > 0 ? extremes.second / extremes.first : std::numeric_limits<double>::infinity();
}

/// About so many inner steps are spent on the search for the most even cut: a fifth of a second.
constexpr size_t kMostWork = 200'000'000;

}  // namespace

std::optional<std::vector<int>> best_split(const SplitProblem& problem) {
  const int blocks = problem.end - problem.begin;
  if (problem.capacities.empty() || blocks < static_cast<int>(problem.capacities.size())) return std::nullopt;
  const BlockRanges ranges(problem.costs, problem.begin, problem.end, problem.count_movable);
  return Search(problem, ranges).run();
}

std::optional<EvenSplit> most_even_split(const SplitProblem& problem, double higher) {
  const auto first = best_split(problem);
  if (!first) return std::nullopt;
  const BlockRanges ranges(problem.costs, problem.begin, problem.end, problem.count_movable);
  const Search free(problem, ranges);
  const auto [least, most] = free.extremes(*first);
  EvenSplit best{*first, ratio_of({least, most})};
  // No largest peak is below `most`: a better ratio needs a smallest above `least`. For every one that there can be, the
  // cut whose largest peak is least; the higher it must be, the fewer cuts are left.
  const std::vector<double> floors = free.peaks_between(least, most);
  const size_t tries = std::clamp<size_t>(kMostWork / std::max<size_t>(1, free.work()), 16, 512);
  const size_t stride = std::max<size_t>(1, (floors.size() + tries - 1) / tries);
  for (size_t f = 0; f < floors.size(); f += stride) {
    Search search(problem, ranges, floors[f]);
    std::vector<int> ends = search.run();
    if (ends.empty()) break;
    const auto found = search.extremes(ends);
    if (found.second > most * higher) break;
    const double ratio = ratio_of(found);
    if (ratio < best.ratio) best = {std::move(ends), ratio};
  }
  return best;
}

}  // namespace lockstep
