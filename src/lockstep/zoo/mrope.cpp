#include "lockstep/zoo/mrope.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// The three axes in the making.
struct Axes {
  std::vector<int32_t> time, row, column;

  void add(int64_t t, int64_t y, int64_t x) {
    time.push_back(static_cast<int32_t>(t));
    row.push_back(static_cast<int32_t>(y));
    column.push_back(static_cast<int32_t>(x));
  }
};

/// Tokens of one medium from position `begin`; what follows it begins at the position returned. Times are cut in
/// float32, as the models were trained with.
int64_t add_medium(Axes& axes, const MediaBlock& block, const MropeRules& rules, int64_t begin) {
  const auto& grid = block.facts.at("grid_thw");
  const int64_t high = grid[1] / rules.merge, wide = grid[2] / rules.merge;
  const float step = block.step_seconds > 0
                         ? static_cast<float>(rules.tokens_per_second) * static_cast<float>(block.step_seconds)
                         : 1.0F;
  for (int64_t t = 0; t < grid[0]; ++t) {
    const auto time = static_cast<int64_t>(static_cast<float>(t) * step);
    for (int64_t y = 0; y < high; ++y) {
      for (int64_t x = 0; x < wide; ++x) axes.add(begin + time, begin + y, begin + x);
    }
  }
  return begin + std::max(high, wide);
}

}  // namespace

void set_mrope_positions(Features& features, const MropeRules& rules) {
  if (features.media.empty()) return;
  Axes axes;
  const auto length = static_cast<int64_t>(features.input_ids.size());
  const std::vector<int> filled = filled_by(features.media, features.input_ids.size());
  int64_t position = 0;
  while (static_cast<int64_t>(axes.time.size()) < length) {
    const size_t here = axes.time.size();
    if (filled[here] < 0) {
      axes.add(position, position, position);
      ++position;
      continue;
    }
    const MediaBlock& block = features.media[static_cast<size_t>(filled[here])];
    position = add_medium(axes, block, rules, position);
    check(axes.time.size() == here + block.places.size() && filled[axes.time.size() - 1] == filled[here],
          "every medium stands among the tokens, whole");
  }
  features.positions = std::move(axes.time);
  for (const auto* axis : {&axes.row, &axes.column}) {
    features.positions.insert(features.positions.end(), axis->begin(), axis->end());
  }
}

}  // namespace lockstep
