#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/quantise.h"

namespace lockstep {
namespace {

constexpr float kPerStep = 7.874015718698502e-3F;  // of 8 bits: 1 / 127
constexpr int64_t kAtOnce = int64_t{1} << 15;      // elements that a thread unpacks together
constexpr int64_t kIndexed = int64_t{1} << 22;     // elements that are looked up together where an op does it

using Bytes = uint8_t __attribute__((vector_size(16)));

/// 16 codes of 8 bytes, in order.
[[gnu::always_inline]] inline Bytes codes_in(const uint8_t* from) {
  Bytes both{};
  std::memcpy(&both, from, 8);
  return __builtin_shufflevector(both >> 4, both & 15, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

[[gnu::always_inline]] inline Bytes low_halves(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
[[gnu::always_inline]] inline Bytes high_halves(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
/// The same of pairs of bytes.
[[gnu::always_inline]] inline Bytes low_pairs(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
}
[[gnu::always_inline]] inline Bytes high_pairs(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
}

/// Bytes of sixteen floats, those of equal place beside one another.
using Planes = std::array<Bytes, 4>;

Planes planes_of(const std::vector<float>& values) {
  Planes planes{};
  for (size_t plane = 0; plane < planes.size(); ++plane) {
    for (size_t i = 0; i < values.size(); ++i) {
      planes[plane][i] = reinterpret_cast<const uint8_t*>(values.data())[i * sizeof(float) + plane];
    }
  }
  return planes;
}

/// A whole block, times its scale. Each byte of a value is looked up by itself, sixteen at a time, and they are laid beside one
/// another.
void look_up(const Planes& planes, const uint8_t* from, float scale, float* to) {
  std::array<Bytes, 4> all[4];
  for (size_t i = 0; i < 4; ++i) {
    const Bytes codes = codes_in(from + i * 8);
    const Bytes a = __builtin_shuffle(planes[0], codes), b = __builtin_shuffle(planes[1], codes),
                c = __builtin_shuffle(planes[2], codes), d = __builtin_shuffle(planes[3], codes);
    const Bytes low_a = low_halves(a, b), low_b = low_halves(c, d), high_a = high_halves(a, b),
                high_b = high_halves(c, d);
    all[i] = {low_pairs(low_a, low_b), high_pairs(low_a, low_b), low_pairs(high_a, high_b), high_pairs(high_a, high_b)};
  }
  std::memcpy(to, all, sizeof(all));
  for (int64_t i = 0; i < QuantLayout::kBlock; ++i) to[i] *= scale;
}

/// In the dtype that is computed with, at once: bitsandbytes 0.50 multiplies by values that it has rounded to nothing else.
template <typename T>
void put(const float* from, int64_t count, T* to) {
  if constexpr (std::is_same_v<T, at::BFloat16>) {
    for (int64_t i = 0; i < count; ++i) {  // what is no number stays none
      const auto bits = std::bit_cast<uint32_t>(from[i]);
      to[i].x = static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
  }
}

template <typename T>
void unpack_blocks(const QuantFormat& format, const uint8_t* codes, const float* scales, int64_t count, T* out) {
  static const Planes nf4 = planes_of(quant_map(QuantKind::kNf4)), fp4 = planes_of(quant_map(QuantKind::kFp4));
  const Planes& planes = format.kind == QuantKind::kNf4 ? nf4 : fp4;
  alignas(64) std::array<float, QuantLayout::kBlock> values;
  std::array<uint8_t, QuantLayout::kBlock / 2> last{};
  for (int64_t begin = 0; begin < count; begin += QuantLayout::kBlock) {
    const int64_t size = std::min(QuantLayout::kBlock, count - begin);
    const uint8_t* from = codes + begin / 2;
    if (size < QuantLayout::kBlock) {
      std::copy_n(from, (size + 1) / 2, last.begin());
      from = last.data();
    }
    look_up(planes, from, scales[begin / QuantLayout::kBlock], values.data());
    put(values.data(), size, out + begin);
  }
}

template <typename T>
void unpack_rows(int64_t width, const int8_t* codes, const float* scales, int64_t count, T* out) {
  std::vector<float> values(static_cast<size_t>(std::min(width, count)));
  for (int64_t row = 0; row * width < count; ++row) {
    const int64_t begin = row * width, size = std::min(width, count - begin);
    for (int64_t i = 0; i < size; ++i)
      values[static_cast<size_t>(i)] = static_cast<float>(codes[begin + i]) * scales[row] * kPerStep;
    put(values.data(), size, out + begin);
  }
}

template <typename Fn>
void with_float(const Tensor& out, Fn&& fn) {
  switch (dtype_of(out)) {
    case Dtype::kF32:
      return fn.template operator()<float>();
    case Dtype::kBF16:
      return fn.template operator()<at::BFloat16>();
    case Dtype::kF16:
      return fn.template operator()<at::Half>();
    default:
      check(false, "matrices are unpacked to f32, bf16 or f16");
  }
}

/// A map on a device, sent there once: a copy for each matrix would have the host wait each time. `map` stays for ever.
Tensor map_on(const c10::Device& device, const std::vector<float>& map) {
  static std::mutex mutex;
  static auto& sent =
      *new std::map<std::pair<std::string, const void*>, Tensor>;  // devices may be gone before statics are
  const std::lock_guard lock(mutex);
  Tensor& there = sent[{device.str(), &map}];
  if (!there.defined()) there = from_values(map, {static_cast<int64_t>(map.size())}).to(device);
  return there;
}

/// Any device: composed of what every backend has.
void unpack_anywhere(const QuantFormat& format, const QuantLayout& layout, const Tensor& bytes, const Tensor& out) {
  const auto floats = [&](int64_t at, int64_t count) { return bytes.narrow(0, at, count * 4).view(at::kFloat); };
  const Tensor codes = bytes.narrow(0, 0, layout.code_bytes);
  Tensor scales = format.nested ? bytes.narrow(0, layout.scales_at, layout.num_scales)
                                : floats(layout.scales_at, layout.num_scales);
  if (format.nested) {
    const Tensor nested = floats(layout.nested_at, layout.num_nested);
    const Tensor map = map_on(out.device(), nested_quant_map());
    scales = map.index({scales.to(at::kInt)})
                 .mul(nested.repeat_interleave(QuantLayout::kNested).narrow(0, 0, layout.num_scales))
                 .add(floats(layout.nested_at + layout.num_nested * 4, 1));
  }
  if (format.kind == QuantKind::kInt8) {
    out.view({-1, layout.width})
        .copy_(codes.view(at::kChar).view({-1, layout.width}).to(at::kFloat).mul(scales.unsqueeze(1)).mul(kPerStep));
    return;
  }
  const Tensor map = map_on(out.device(), quant_map(format.kind));
  for (int64_t begin = 0; begin < layout.numel; begin += kIndexed) {  // an index takes eight times what a value does
    const int64_t count = std::min(kIndexed, layout.numel - begin), blocks = stretches(count, QuantLayout::kBlock);
    const Tensor part = codes.narrow(0, begin / 2, stretches(count, 2));
    const Tensor each = at::stack({part.bitwise_right_shift(4), part.bitwise_and(15)}, 1).flatten().narrow(0, 0, count);
    const Tensor scale = scales.narrow(0, begin / QuantLayout::kBlock, blocks).repeat_interleave(QuantLayout::kBlock);
    out.narrow(0, begin, count).copy_(map.index({each.to(at::kInt)}).mul_(scale.narrow(0, 0, count)));
  }
}

}  // namespace

void unpack_scales(const uint8_t* codes, const float* nested, float offset, int64_t first, std::span<float> out) {
  const std::vector<float>& values = nested_quant_map();
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = values[codes[i]] * nested[(first + static_cast<int64_t>(i)) / QuantLayout::kNested] + offset;
  }
}

void unpack_codes(const QuantFormat& format, int64_t per_scale, const uint8_t* codes, const float* scales,
                  const Tensor& out) {
  with_float(out, [&]<typename T>() {
    T* const to = static_cast<T*>(out.data_ptr());
    if (format.four_bits()) {
      unpack_blocks<T>(format, codes, scales, out.numel(), to);
    } else {
      unpack_rows<T>(per_scale, reinterpret_cast<const int8_t*>(codes), scales, out.numel(), to);
    }
  });
}

void unpack(const QuantFormat& format, const Shape& shape, const Tensor& bytes, const Tensor& out) {
  const QuantLayout layout = QuantLayout::of(format, shape);
  check(bytes.numel() == layout.bytes && out.numel() == layout.numel, "a matrix and its bytes");
  if (out.is_meta()) return;
  if (format.kind == QuantKind::kNone) {
    const auto dtype = static_cast<at::ScalarType>(scalar_type_of(format.dtype));
    out.copy_(bytes.narrow(0, 0, layout.code_bytes).view(dtype));
    return;
  }
  if (!out.is_cpu()) return unpack_anywhere(format, layout, bytes, out);
  const auto* const base = static_cast<const uint8_t*>(bytes.const_data_ptr());
  const auto* const nested = reinterpret_cast<const float*>(base + layout.nested_at);
  const int64_t each = layout.per_scale, scales_at_once = std::max<int64_t>(1, kAtOnce / std::max<int64_t>(1, each));
  kernels::parallel_rows(stretches(layout.num_scales, scales_at_once), 1, [&](int64_t from, int64_t to) {
    std::vector<float> scales(static_cast<size_t>(format.nested ? scales_at_once : 0));
    for (int64_t part = from; part < to; ++part) {
      const int64_t first = part * scales_at_once, count = std::min(scales_at_once, layout.num_scales - first);
      const int64_t begin = first * each, numel = std::min(count * each, layout.numel - begin);
      const auto* here = reinterpret_cast<const float*>(base + layout.scales_at) + first;
      if (format.nested) {
        unpack_scales(base + layout.scales_at + first, nested, nested[layout.num_nested], first,
                      std::span(scales).first(static_cast<size_t>(count)));
        here = scales.data();
      }
      unpack_codes(format, each, base + (format.four_bits() ? begin / 2 : begin), here, out.narrow(0, begin, numel));
    }
  });
}

}  // namespace lockstep
