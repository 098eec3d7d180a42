#include "lockstep/data/row_piece.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// A row without its text and ids, so that a piece copies its own alone.
struct Kept {
  WholeRow which;
  Sample rest;
  std::string text;
  std::vector<int32_t> input_ids, labels;
};

bool is_same(const WholeRow& a, const WholeRow& b) {
  return a.row == b.row && !a.data.expired() && !a.data.owner_before(b.data) && !b.data.owner_before(a.data);
}

Kept kept_of(const WholeRow& which, Sample sample) {
  Kept kept{.which = which, .rest = {}, .text = {}, .input_ids = {}, .labels = {}};
  kept.input_ids = std::exchange(sample.input_ids, {});
  kept.labels = std::exchange(sample.labels, {});
  if (kept.input_ids.empty()) kept.text = std::exchange(sample.messages.at(0).content, {});
  kept.rest = std::move(sample);
  return kept;
}

}  // namespace

Sample piece_of(const RowPiece& piece, const WholeRow& which, const std::function<Sample()>& read) {
  if (piece.end == 0) return read();
  static thread_local Kept kept;
  if (!is_same(kept.which, which)) kept = kept_of(which, read());
  Sample out = kept.rest;
  const auto cut = [&](const auto& whole, auto& to) {
    out.continues = piece.begin > 0;
    out.goes_on = piece.end < whole.size();
    to.assign(whole.begin() + static_cast<std::ptrdiff_t>(piece.begin),
              whole.begin() + static_cast<std::ptrdiff_t>(piece.end));
  };
  if (kept.input_ids.empty()) {
    cut(kept.text, out.messages.at(0).content);
  } else {
    cut(kept.labels, out.labels);
    cut(kept.input_ids, out.input_ids);
  }
  return out;
}

}  // namespace lockstep
