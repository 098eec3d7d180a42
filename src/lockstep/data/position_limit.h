// A family's processor for a model of so many positions: rows beyond them are too long even where no limit is asked for.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/processor.h"

namespace lockstep {

struct PositionLimit {
  int64_t positions = 0;  // 0: none
  bool ends = false;      // rows beyond them have no one result: --max_length may not ask for any

  /// Throws UserError(kUsage) where `max_length` (0: none) asks for rows that have no one result.
  void check_length(int64_t max_length) const;
};

/// Rows are limited to so many tokens where ProcessOptions::max_length is 0.
std::unique_ptr<Processor> limited_to_positions(std::unique_ptr<Processor> inner, const PositionLimit& limit);

}  // namespace lockstep
