// Data sets made of another's rows.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"  // epoch_order

namespace lockstep {

Dataset Dataset::in_pieces(const Dataset& whole, std::vector<RowPiece> pieces) {
  check(whole.pieces_.empty(), "a data set of whole rows");
  check(std::ranges::is_sorted(pieces, {}, &RowPiece::row), "pieces in the order of their rows");
  std::vector<int64_t> rows;
  for (const RowPiece& piece : pieces) rows.push_back(whole.rows_.at(static_cast<size_t>(piece.row)));
  Dataset out(whole.impl_, std::move(rows));
  out.pieces_ = std::move(pieces);
  out.lists_broken_ = whole.lists_broken_;
  return out;
}

std::pair<Dataset, Dataset> Dataset::split(Dataset whole, double part, uint64_t seed) {
  const auto rows = static_cast<double>(whole.size());
  if (!(part > 0.0 && part < rows) || whole.size() < 2) {
    throw data_error(fmt::format("expected rows to be left beside those of evaluation, found {:g} {} of {} rows for it",
                                 part, part < 1 ? "(a part)" : "rows", whole.size()),
                     "a smaller --split_dataset_ratio, or rows of their own: --val_dataset");
  }
  const auto wanted = std::llround(part < 1 ? part * rows : part);
  const auto second_size = static_cast<std::ptrdiff_t>(std::clamp<int64_t>(wanted, 1, whole.size() - 1));
  std::vector<int64_t> order = epoch_order(whole.size(), seed, 0, true);
  for (auto& row : order) row = whole.rows_[static_cast<size_t>(row)];
  std::vector<int64_t> second(order.end() - second_size, order.end());
  order.resize(order.size() - second.size());
  // Chosen at random, kept in the order of the file.
  std::sort(order.begin(), order.end());
  std::sort(second.begin(), second.end());
  Dataset kept(whole.impl_, std::move(second));
  kept.lists_broken_ = false;  // each is told once
  return {Dataset(whole.impl_, std::move(order)), std::move(kept)};
}

}  // namespace lockstep
