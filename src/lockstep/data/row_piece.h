// A part of a row that is one text, or token ids: what a text becomes that is too long for one row.
#pragma once

#include <cstdint>

#include "lockstep/data/sample.h"

namespace lockstep {

struct RowPiece {
  int64_t row = 0;              // of the whole rows
  uint64_t begin = 0, end = 0;  // bytes, or tokens; end 0: all of it
};

/// Leaves the piece of the row, and says what stands around it.
void cut_out(Sample& sample, const RowPiece& piece);

}  // namespace lockstep
