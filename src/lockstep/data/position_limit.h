// A family's processor for a model of so many positions: rows beyond them are too long even where no limit is asked for.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/processor.h"

namespace lockstep {

/// Rows are limited to `max_positions` tokens where ProcessOptions::max_length is 0. `max_positions` of 0: no limit.
std::unique_ptr<Processor> limited_to_positions(std::unique_ptr<Processor> inner, int64_t max_positions);

}  // namespace lockstep
