#include "lockstep/state/quantised_unit.h"

#include <cmath>
#include <cstring>
#include <vector>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/quantised_tensor.h"
#include "lockstep/model/weights.h"

namespace lockstep {
namespace {

/// Calls `visit(source, its part, its first element in the unit)`.
template <typename Visit>
void for_each_part(const Unit& unit, const Visit& visit) {
  size_t index = 0;
  for (const auto& placed : unit.params) {
    int64_t first = placed.offset;
    for (const auto& source : placed.spec.sources) {
      visit(source, unit.quantised->parts.at(index++), first);
      first += numel_of(source.shape);
    }
  }
}

/// Of the bytes that were read, which begin at a cache line: scales that are no numbers would be all of their blocks.
void require_finite_scales(const ParamSource& source, const QuantFormat& format, int64_t begin,
                           std::span<const uint8_t> bytes) {
  const QuantLayout layout = QuantLayout::of(format, source.shape);
  const int64_t at = format.nested ? layout.nested_at : layout.scales_at;
  const int64_t count = format.nested ? layout.num_nested + 1 : layout.num_scales;
  const int64_t from = std::max(at, begin), to = std::min(at + count * 4, begin + static_cast<int64_t>(bytes.size()));
  for (int64_t i = from; i < to; i += 4) {
    float scale = 0;
    std::memcpy(&scale, bytes.data() + (i - begin), 4);
    if (std::isfinite(scale)) continue;
    throw UserError(ExitCode::kNumerics,
                    fmt::format("{}: found NaN or infinity among its scales, expected numbers", source.key),
                    "the run that saved it had diverged, or the file is damaged: take another copy");
  }
}

/// Rows of a file's tensor, with their scales as numbers: whole blocks.
std::vector<uint8_t> pieces(const Weights& weights, const StoredPart& part, const ParamSource& source,
                            const QuantFormat& format) {
  const QuantisedTensor& stored = *weights.quantised(part.name);
  const QuantLayout layout = QuantLayout::of(format, source.shape);
  const int64_t each = layout.per_scale, per_byte = format.four_bits() ? 2 : 1;
  std::vector<uint8_t> bytes(static_cast<size_t>(layout.bytes));
  for_each_piece(part.rows, source.shape, 0, layout.numel, [&](int64_t there, int64_t here, int64_t count) {
    const auto codes =
        std::span(bytes).subspan(static_cast<size_t>(here / per_byte), static_cast<size_t>(stretches(count, per_byte)));
    weights.read_quantised(stored.spec.name, there / per_byte, codes);
    std::vector<float> scales(static_cast<size_t>(stretches(count, each)));
    weights.read_scales(stored.spec.name, there / each, scales);
    std::memcpy(bytes.data() + layout.scales_at + here / each * 4, scales.data(), scales.size() * 4);
  });
  return bytes;
}

}  // namespace

void fill_quantised(const Unit& unit, Range range, const ReadQuantised& read, const Tensor& out) {
  auto* const to = static_cast<uint8_t*>(out.data_ptr());
  for_each_part(unit, [&](const ParamSource& source, const QuantPart& part, int64_t) {
    const Range place{part.begin, part.begin + QuantLayout::of(part.format, source.shape).bytes};
    const Range wanted = intersect(place, range);
    if (wanted.empty()) return;
    const std::span<uint8_t> bytes(to + (wanted.begin - range.begin), static_cast<size_t>(wanted.size()));
    read(source, part.format, wanted.begin - place.begin, bytes);
    if (part.format.kind != QuantKind::kNone) {
      require_finite_scales(source, part.format, wanted.begin - place.begin, bytes);
    }
  });
}

void read_stored(const Weights& weights, const KeyMap& keys, const ParamSource& source, const QuantFormat& format,
                 int64_t begin, std::span<uint8_t> out) {
  const StoredPart part = keys.on_disk(source.key);
  if (part.rows.whole()) return weights.read_quantised(part.name, begin, out);
  const std::vector<uint8_t> all = pieces(weights, part, source, format);
  std::memcpy(out.data(), all.data() + begin, out.size());
}

void unpack_unit(const Unit& unit, const Tensor& bytes, const Tensor& full) {
  for_each_part(unit, [&](const ParamSource& source, const QuantPart& part, int64_t first) {
    unpack(part.format, source.shape, bytes.narrow(0, part.begin, QuantLayout::of(part.format, source.shape).bytes),
           full.narrow(0, first, numel_of(source.shape)));
  });
}

}  // namespace lockstep
