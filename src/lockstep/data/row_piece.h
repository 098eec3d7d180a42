// A part of a row that is text alone, or token ids: what a text becomes that is too long for one row.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lockstep/data/sample.h"

namespace lockstep {

struct RowPiece {
  int64_t row = 0;              // of the whole rows
  uint64_t begin = 0, end = 0;  // bytes of its messages behind one another, or tokens; end 0: all of it
};

/// Which row of which data set, for as long as that is there.
struct WholeRow {
  std::weak_ptr<const void> data;
  int64_t row = 0;
};

/// The piece of the row that `read` gives, and what stands around it. Each thread keeps the row that it has read last: pieces that
/// are asked for one behind the other are of one row, which may be a book.
Sample piece_of(const RowPiece& piece, const WholeRow& which, const std::function<Sample()>& read);

}  // namespace lockstep
