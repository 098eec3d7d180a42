// Matrices as codes of 4 or 8 bits, with the bytes and the values of bitsandbytes 0.50.
//
// 4 bits: blocks of 64 elements of the flattened matrix, each a scale (its largest magnitude) and codes of one of 16 values
// in -1..1; two codes a byte, the first above. Nested ("double quantisation"): the scales, less an offset, are codes of 256
// values in blocks of 256. 8 bits: each row a scale, value = code * scale / 127. Sources: Dettmers et al. 2022, 2023.
//
// Example:
//   const QuantFormat format{.kind = QuantKind::kNf4, .dtype = Dtype::kBF16};
//   std::vector<uint8_t> bytes(QuantLayout::of(format, shape).bytes);
//   quantise(format, shape, read_values, 0, bytes);
//   unpack(format, shape, bytes_tensor, out);            // out: [numel], f32, bf16 or f16
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/tensor/spec.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

enum class QuantKind : uint8_t { kNone, kNf4, kFp4, kInt8 };
std::string_view quant_kind_name(QuantKind kind);  // "nf4", "fp4", "int8"

struct QuantFormat {
  QuantKind kind = QuantKind::kNone;  // kNone: values of `dtype`
  bool nested = false;                // of 4 bits
  Dtype dtype = Dtype::kF32;          // of the values before they became codes; of kNone, as which they are kept

  bool four_bits() const { return kind == QuantKind::kNf4 || kind == QuantKind::kFp4; }
  bool operator==(const QuantFormat&) const = default;
};

/// Where the parts of a matrix begin among its bytes; each at a cache line.
struct QuantLayout {
  static constexpr int64_t kBlock = 64, kNested = 256;

  int64_t numel = 0, width = 0;           // elements of the matrix, and of a row
  int64_t code_bytes = 0;                 // from 0 on
  int64_t scales_at = 0, num_scales = 0;  // f32, or u8 where they are nested
  int64_t nested_at = 0, num_nested = 0;  // f32, and behind them the offset
  int64_t per_scale = 0;                  // elements of a block, or of a row
  int64_t bytes = 0;                      // of all

  static QuantLayout of(const QuantFormat& format, const Shape& shape);
};

/// How many stretches of `size` hold `count`; the last may be shorter.
inline int64_t stretches(int64_t count, int64_t size) { return (count + size - 1) / size; }

/// Elements [begin, begin + out.size()) of a matrix.
using ReadValues = std::function<void(int64_t begin, std::span<float> out)>;

/// Bytes [begin, begin + out.size()) of what `values` become, a stretch at a time.
void quantise(const QuantFormat& format, const Shape& shape, const ReadValues& values, int64_t begin,
              std::span<uint8_t> out);

/// bytes [layout.bytes] u8 -> out [numel]: on the device where both stand.
void unpack(const QuantFormat& format, const Shape& shape, const Tensor& bytes, const Tensor& out);

/// The same of `out.numel()` elements whose codes, one block's or row's first, and scales are given: on the host.
void unpack_codes(const QuantFormat& format, int64_t per_scale, const uint8_t* codes, const float* scales,
                  const Tensor& out);

/// Scales out of their codes: scales [first, first + out.size()).
void unpack_scales(const uint8_t* codes, const float* nested, float offset, int64_t first, std::span<float> out);

/// What codes stand for: [16] of 4 bits, by code; [256] of nested scales. As bitsandbytes keeps it beside a matrix.
const std::vector<float>& quant_map(QuantKind kind);
const std::vector<float>& nested_quant_map();

}  // namespace lockstep
