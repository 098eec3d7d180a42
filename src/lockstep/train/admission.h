// Rows that would not fit in memory together run one after another; a row that does not fit alone is refused by name.
//
// Whether rows fit is asked of a rehearsal, which takes milliseconds: so the answer for a batch is remembered, and
// serves for all that are no larger in any respect.
//
// Example:
//   Admission admission([&](const auto& rows) { return rehearse(model, plan, {rows}, scene).fits(); });
//   auto admitted = admission.admit(std::move(rows));       // admitted.batches run one after another
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/data/features.h"

namespace lockstep {

struct Admitted {
  std::vector<std::vector<Features>> batches;  // in the order of the rows; empty when no row fits
  std::vector<std::string> refused;            // where each row that fits nowhere came from, and its size
};

class Admission {
 public:
  using Fits = std::function<bool(const std::vector<Features>& rows)>;
  /// `packed`: rows stand behind one another, so that their sum counts where the longest does with padding.
  explicit Admission(Fits fits, bool packed = false) : fits_(std::move(fits)), packed_(packed) {}

  /// Splits into halves until each fits.
  Admitted admit(std::vector<Features> rows);

 private:
  /// What memory grows with: rows, the longest row, media, their values, tokens that media fill, targets, tokens of packed
  /// rows.
  using Size = std::array<int64_t, 7>;
  Size size_of(const std::vector<Features>& rows) const;
  static bool within(const Size& a, const Size& b);
  bool fits(const std::vector<Features>& rows);
  void add(std::vector<Features> rows, Admitted& admitted);

  Fits fits_;
  bool packed_ = false;
  std::vector<Size> fitted_, too_large_;
};

}  // namespace lockstep
