#include "lockstep/zoo/typical_row.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep {

Features typical_text_row(int64_t tokens) {
  const auto count = static_cast<size_t>(tokens);
  return {.input_ids = std::vector<int32_t>(count, 0), .labels = std::vector<int32_t>(count, 0)};
}

Features typical_picture_row(int64_t tokens, MediaBlock picture, int64_t placeholders) {
  constexpr int32_t kIgnored = -100;
  Features row = typical_text_row(tokens);
  if (placeholders >= tokens) return row;
  picture.places.resize(static_cast<size_t>(placeholders));
  std::iota(picture.places.begin(), picture.places.end(), 0);
  row.media.push_back(std::move(picture));
  std::fill_n(row.labels.begin(), placeholders, kIgnored);
  return row;
}

}  // namespace lockstep
