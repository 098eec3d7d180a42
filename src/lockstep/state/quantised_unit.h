// The bytes of a unit whose matrices are kept as codes: read from a folder or made of values while they are loaded, each
// rank its own part, and unpacked before they are used.
#pragma once

#include <functional>

#include "lockstep/plan/plan.h"
#include "lockstep/state/shard_layout.h"

namespace lockstep {

class KeyMap;
class Weights;

/// Bytes [begin, begin + out.size()) of a source that is kept in `format`.
using ReadQuantised =
    std::function<void(const ParamSource& source, const QuantFormat& format, int64_t begin, std::span<uint8_t> out)>;

/// Bytes `range` of the unit into `out` (u8, host, zeros before).
void fill_quantised(const Unit& unit, Range range, const ReadQuantised& read, const Tensor& out);

/// As the folder has it; a source of which it holds values is not for this.
void read_stored(const Weights& weights, const KeyMap& keys, const ParamSource& source, const QuantFormat& format,
                 int64_t begin, std::span<uint8_t> out);

/// All bytes of a unit -> its parameters in `full`, [padded].
void unpack_unit(const Unit& unit, const Tensor& bytes, const Tensor& full);

}  // namespace lockstep
