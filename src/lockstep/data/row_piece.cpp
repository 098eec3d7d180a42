#include "lockstep/data/row_piece.h"

#include <cstddef>

namespace lockstep {

void cut_out(Sample& sample, const RowPiece& piece) {
  if (piece.end == 0) return;
  const auto cut = [&](auto& whole) {
    sample.continues = piece.begin > 0;
    sample.goes_on = piece.end < whole.size();
    whole.erase(whole.begin() + static_cast<std::ptrdiff_t>(piece.end), whole.end());
    whole.erase(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(piece.begin));
  };
  if (sample.input_ids.empty()) return cut(sample.messages.at(0).content);
  cut(sample.labels);
  cut(sample.input_ids);
}

}  // namespace lockstep
