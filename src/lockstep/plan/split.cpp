#include "lockstep/plan/split.h"

#include <algorithm>
#include <limits>

#include "lockstep/plan/block_ranges.h"
#include "lockstep/plan/pipeline.h"

namespace lockstep {
namespace {

/// Tables over (stages that remain, first block that they take), filled from the last stage to the first.
class Search {
 public:
  Search(const SplitProblem& problem, const BlockRanges& ranges)
      : problem_(problem), stretches_(ranges), stages_(problem.capacities.size()), blocks_(ranges.size()) {}

  std::vector<int> run() {
    Table largest = table(kInfinite);
    largest[0][blocks_] = 0;
    fill([&](size_t r, size_t i, size_t j, double peak) {
      largest[r][i] = std::min(largest[r][i], std::max(peak, largest[r - 1][j]));
    });
    const double bound = largest[stages_][0];
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

 private:
  using Table = std::vector<std::vector<double>>;
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  Table table(double value) const { return Table(stages_ + 1, std::vector<double>(blocks_ + 1, value)); }

  /// Of blocks [i, j) as the stage behind which r - 1 of these stages remain.
  double peak(size_t r, size_t i, size_t j) const {
    const int behind = static_cast<int>(r) + problem_.stages_behind;
    const int in_flight = micro_batches_in_flight(0, behind, problem_.micro_batches);
    return static_cast<double>(stretches_.bytes(i, j, in_flight)) / problem_.capacities[stages_ - r];
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
};

}  // namespace

std::optional<std::vector<int>> best_split(const SplitProblem& problem) {
  const int blocks = problem.end - problem.begin;
  if (problem.capacities.empty() || blocks < static_cast<int>(problem.capacities.size())) return std::nullopt;
  const BlockRanges ranges(problem.costs, problem.begin, problem.end, problem.count_movable);
  return Search(problem, ranges).run();
}

}  // namespace lockstep
