#include "lockstep/train/admission.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "lockstep/tensor/spec.h"

namespace lockstep {

Admission::Size Admission::size_of(const std::vector<Features>& rows) const {
  Size size{static_cast<int64_t>(rows.size())};
  for (const auto& row : rows) {
    size[1] = std::max(size[1], static_cast<int64_t>(row.input_ids.size()));
    size[6] += packed_ ? static_cast<int64_t>(row.input_ids.size()) : 0;
    size[2] += static_cast<int64_t>(row.media.size());
    for (const auto& block : row.media) size[3] += numel_of(block.shape);
    size[4] += count_places(row.media);
    size[5] += std::count_if(row.labels.begin(), row.labels.end(), [](int32_t label) { return label >= 0; });
  }
  return size;
}

bool Admission::within(const Size& a, const Size& b) {
  return std::equal(a.begin(), a.end(), b.begin(), [](int64_t x, int64_t y) { return x <= y; });
}

bool Admission::fits(const std::vector<Features>& rows) {
  const Size size = size_of(rows);
  const auto known = [&](const std::vector<Size>& sizes, bool below) {
    return std::any_of(sizes.begin(), sizes.end(),
                       [&](const Size& other) { return below ? within(size, other) : within(other, size); });
  };
  if (known(fitted_, /*below=*/true)) return true;
  if (known(too_large_, /*below=*/false)) return false;
  const bool good = fits_(rows);
  (good ? fitted_ : too_large_).push_back(size);
  return good;
}

void Admission::add(std::vector<Features> rows, Admitted& admitted) {
  if (rows.empty()) return;
  if (fits(rows)) {
    admitted.batches.push_back(std::move(rows));
    return;
  }
  if (rows.size() == 1) {
    const Size size = size_of(rows);
    admitted.refused.push_back(fmt::format("{}: {} tokens and {} media need more memory than --memory_limit leaves",
                                           rows[0].sample.where, size[1], size[2]));
    return;
  }
  const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
  std::vector<Features> rest(std::make_move_iterator(middle), std::make_move_iterator(rows.end()));
  rows.erase(middle, rows.end());
  add(std::move(rows), admitted);
  add(std::move(rest), admitted);
}

Admitted Admission::admit(std::vector<Features> rows) {
  Admitted admitted;
  add(std::move(rows), admitted);
  return admitted;
}

}  // namespace lockstep
