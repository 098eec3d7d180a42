#include "lockstep/tensor/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sort.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kLine = 64;                   // bytes
constexpr int64_t kStretch = int64_t{1} << 18;  // elements that are looked at together: whole blocks of scales' blocks
constexpr float kSteps = 127;

int64_t to_line(int64_t bytes) { return stretches(bytes, kLine) * kLine; }

/// Quantiles of a normal distribution, and zero. Source: Dettmers et al. 2023, appendix E.
constexpr std::array kNf4 = {-1.0F,
                             -0.6961928009986877F,
                             -0.5250730514526367F,
                             -0.39491748809814453F,
                             -0.28444138169288635F,
                             -0.18477343022823334F,
                             -0.09105003625154495F,
                             0.0F,
                             0.07958029955625534F,
                             0.16093020141124725F,
                             0.24611230194568634F,
                             0.33791524171829224F,
                             0.44070982933044434F,
                             0.5626170039176941F,
                             0.7229568362236023F,
                             1.0F};
/// A sign, two bits of exponent and one of mantissa, over the largest.
constexpr std::array kFp4 = {0.0F, 0.0052083335F,  0.6666667F,  1.0F,  0.33333334F,  0.5F,  0.16666667F,  0.25F,
                             0.0F, -0.0052083335F, -0.6666667F, -1.0F, -0.33333334F, -0.5F, -0.16666667F, -0.25F};

/// Which of rising values is nearest: as many as stand below it of the points half-way between them.
struct Nearest {
  std::vector<float> halves;
  std::vector<uint8_t> codes;  // by rising value

  explicit Nearest(std::span<const float> values) {
    for (size_t i = 0; i < values.size(); ++i) codes.push_back(static_cast<uint8_t>(i));
    std::ranges::stable_sort(codes, [&](uint8_t a, uint8_t b) { return values[a] < values[b]; });
    for (size_t i = 0; i + 1 < codes.size(); ++i) {
      halves.push_back((values[codes[i]] + values[codes[i + 1]]) / 2);
    }
  }
  uint8_t code(float x) const {
    return codes[static_cast<size_t>(std::ranges::lower_bound(halves, x) - halves.begin())];
  }
};

const Nearest& nearest_of(QuantKind kind) {
  static const Nearest nf4(kNf4), fp4(kFp4);
  return kind == QuantKind::kNf4 ? nf4 : fp4;
}

float largest_of(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::fabs(value));
  return most;
}

float over(float scale) { return scale == 0 ? 0.0F : 1.0F / scale; }

/// Codes of one block, one a byte.
void codes_of_block(const Nearest& nearest, std::span<const float> x, float scale, uint8_t* out) {
  const float by = over(scale);
  std::array<float, QuantLayout::kBlock> scaled{};
  std::array<int32_t, QuantLayout::kBlock> below{};
  for (size_t i = 0; i < x.size(); ++i) scaled[i] = std::clamp(x[i] * by, -1.0F, 1.0F);
  for (const float half : nearest.halves) {
    for (size_t i = 0; i < below.size(); ++i) below[i] += scaled[i] > half ? 1 : 0;
  }
  for (size_t i = 0; i < x.size(); ++i) out[i] = nearest.codes[static_cast<size_t>(below[i])];
}

/// What of [at, at + size) lies in the wanted bytes is copied there.
struct Wanted {
  int64_t begin;
  std::span<uint8_t> out;

  int64_t end() const { return begin + static_cast<int64_t>(out.size()); }
  bool touches(int64_t from, int64_t to) const { return from < end() && to > begin; }
  void put(int64_t at, const void* data, int64_t size) const {
    const int64_t from = std::max(at, begin), to = std::min(at + size, end());
    if (from >= to) return;
    std::memcpy(out.data() + (from - begin), static_cast<const uint8_t*>(data) + (from - at),
                static_cast<size_t>(to - from));
  }
};

void check_finite(std::span<const float> x) {
  float sum = 0;
  for (const float value : x) sum += value * 0;
  if (sum == 0) return;
  throw UserError(ExitCode::kNumerics, "found NaN or infinity in a matrix that is to be quantised, expected numbers",
                  "the run that saved it had diverged, or the file is damaged: take an earlier checkpoint");
}

/// A matrix of 4 bits, a stretch of blocks at a time.
class FourBits {
 public:
  FourBits(const QuantFormat& format, const QuantLayout& layout, const ReadValues& values, const Wanted& wanted)
      : nearest_(nearest_of(format.kind)), layout_(layout), values_(values), wanted_(wanted) {
    if (!format.nested) {
      run(/*all=*/false, [&](int64_t first, std::span<const float> scales) {
        wanted_.put(layout_.scales_at + first * 4, scales.data(), static_cast<int64_t>(scales.size()) * 4);
      });
      return;
    }
    // The offset is the mean of all scales.
    const bool scales_wanted = wanted_.touches(layout_.scales_at, layout_.bytes);
    const Tensor all = empty({scales_wanted ? layout_.num_scales : 0}, Dtype::kF32);
    run(scales_wanted, [&](int64_t first, std::span<const float> scales) {
      if (scales_wanted) std::ranges::copy(scales, all.data_ptr<float>() + first);
    });
    if (scales_wanted) put_nested(all);
  }

 private:
  template <typename OnScales>
  void run(bool all, const OnScales& on_scales) {
    std::vector<float> x, scales;
    std::vector<uint8_t> codes, packed;
    for (int64_t begin = 0; begin < layout_.numel; begin += kStretch) {
      const int64_t count = std::min(kStretch, layout_.numel - begin), first = begin / QuantLayout::kBlock;
      const int64_t blocks = stretches(count, QuantLayout::kBlock), at = layout_.scales_at + first * 4;
      const bool coded = wanted_.touches(begin / 2, begin / 2 + stretches(count, 2));
      if (!coded && !all && !wanted_.touches(at, at + blocks * 4)) continue;
      x.resize(static_cast<size_t>(count));
      values_(begin, x);
      check_finite(x);
      scales.resize(static_cast<size_t>(blocks));
      codes.assign(static_cast<size_t>(count + 1), 0);
      for (int64_t block = 0; block < blocks; ++block) {
        const auto from = static_cast<size_t>(block * QuantLayout::kBlock);
        const auto part =
            std::span<const float>(x).subspan(from, std::min<size_t>(QuantLayout::kBlock, x.size() - from));
        scales[static_cast<size_t>(block)] = largest_of(part);
        if (coded) codes_of_block(nearest_, part, scales[static_cast<size_t>(block)], codes.data() + from);
      }
      on_scales(first, scales);
      if (!coded) continue;
      packed.resize(static_cast<size_t>(stretches(count, 2)));
      for (size_t i = 0; i < packed.size(); ++i) {
        packed[i] = static_cast<uint8_t>(codes[2 * i] << 4 | codes[2 * i + 1]);
      }
      wanted_.put(begin / 2, packed.data(), static_cast<int64_t>(packed.size()));
    }
  }

  void put_nested(const Tensor& scales) const {
    static const Nearest nearest(nested_quant_map());
    const float offset = scales.mean().item<float>();
    const Tensor moved = scales.sub(offset);
    const std::span<const float> all(moved.data_ptr<float>(), static_cast<size_t>(layout_.num_scales));
    std::vector<uint8_t> codes(all.size());
    std::vector<float> nested;
    for (size_t begin = 0; begin < all.size(); begin += QuantLayout::kNested) {
      const auto part = all.subspan(begin, std::min<size_t>(QuantLayout::kNested, all.size() - begin));
      nested.push_back(largest_of(part));
      const float by = over(nested.back());
      for (size_t i = 0; i < part.size(); ++i) {
        codes[begin + i] = nearest.code(std::clamp(part[i] * by, -1.0F, 1.0F));
      }
    }
    nested.push_back(offset);
    wanted_.put(layout_.scales_at, codes.data(), layout_.num_scales);
    wanted_.put(layout_.nested_at, nested.data(), static_cast<int64_t>(nested.size()) * 4);
  }

  const Nearest& nearest_;
  const QuantLayout& layout_;
  const ReadValues& values_;
  const Wanted& wanted_;
};

/// A row at a time, of values that have been rounded to float16, as bitsandbytes takes them.
void quantise_rows(const QuantLayout& layout, const ReadValues& values, const Wanted& wanted) {
  std::vector<float> x(static_cast<size_t>(layout.width));
  std::vector<int8_t> codes(x.size());
  for (int64_t row = 0; row < layout.num_scales; ++row) {
    const int64_t begin = row * layout.width, at = layout.scales_at + row * 4;
    if (!wanted.touches(begin, begin + layout.width) && !wanted.touches(at, at + 4)) continue;
    values(begin, x);
    check_finite(x);
    for (float& value : x) value = static_cast<float>(static_cast<at::Half>(value));
    const float scale = largest_of(x), by = scale == 0 ? 0.0F : kSteps * (1.0F / scale);
    for (size_t i = 0; i < x.size(); ++i) codes[i] = static_cast<int8_t>(std::nearbyint(x[i] * by));
    wanted.put(begin, codes.data(), layout.width);
    wanted.put(at, &scale, 4);
  }
}

void keep_values(Dtype dtype, const QuantLayout& layout, const ReadValues& values, const Wanted& wanted) {
  const int64_t size = dtype_bytes(dtype);
  for (int64_t begin = 0; begin < layout.numel; begin += kStretch) {
    const int64_t count = std::min(kStretch, layout.numel - begin);
    if (!wanted.touches(begin * size, (begin + count) * size)) continue;
    const Tensor x = empty({count}, Dtype::kF32);
    values(begin, {x.data_ptr<float>(), static_cast<size_t>(count)});
    const Tensor kept = to_dtype(x, dtype);
    wanted.put(begin * size, kept.data_ptr(), count * size);
  }
}

}  // namespace

std::string_view quant_kind_name(QuantKind kind) {
  switch (kind) {
    case QuantKind::kNone:
      return "none";
    case QuantKind::kNf4:
      return "nf4";
    case QuantKind::kFp4:
      return "fp4";
    case QuantKind::kInt8:
      return "int8";
  }
  check(false, "a kind of codes");
  return "";
}

QuantLayout QuantLayout::of(const QuantFormat& format, const Shape& shape) {
  QuantLayout out{.numel = numel_of(shape)};
  out.width = shape.empty() || shape[0] == 0 ? out.numel : out.numel / shape[0];
  out.per_scale = format.four_bits() ? kBlock : out.width;
  if (format.kind == QuantKind::kNone) {
    out.code_bytes = out.numel * dtype_bytes(format.dtype);
    out.bytes = out.scales_at = out.nested_at = to_line(out.code_bytes);
    return out;
  }
  out.code_bytes = format.four_bits() ? stretches(out.numel, 2) : out.numel;
  out.num_scales = format.four_bits() ? stretches(out.numel, kBlock) : shape[0];
  out.scales_at = to_line(out.code_bytes);
  out.nested_at = out.scales_at + to_line(out.num_scales * (format.nested ? 1 : 4));
  out.num_nested = format.nested ? stretches(out.num_scales, kNested) : 0;
  out.bytes = out.nested_at + (format.nested ? to_line((out.num_nested + 1) * 4) : 0);
  return out;
}

void quantise(const QuantFormat& format, const Shape& shape, const ReadValues& values, int64_t begin,
              std::span<uint8_t> out) {
  const QuantLayout layout = QuantLayout::of(format, shape);
  const Wanted wanted{begin, out};
  check(begin >= 0 && wanted.end() <= layout.bytes, "bytes of the matrix");
  std::ranges::fill(out, uint8_t{0});
  if (format.kind == QuantKind::kNone) return keep_values(format.dtype, layout, values, wanted);
  if (format.kind == QuantKind::kInt8) return quantise_rows(layout, values, wanted);
  // In the dtype that the weights are loaded in, as they would be without it.
  FourBits(
      format, layout,
      [&](int64_t first, std::span<float> x) {
        values(first, x);
        if (format.dtype == Dtype::kF32) return;
        const Tensor view = view_memory(x.data(), {static_cast<int64_t>(x.size())}, Dtype::kF32);
        view.copy_(to_dtype(view, format.dtype));
      },
      wanted);
}

const std::vector<float>& quant_map(QuantKind kind) {
  static const std::vector<float> nf4(kNf4.begin(), kNf4.end()), fp4(kFp4.begin(), kFp4.end());
  return kind == QuantKind::kNf4 ? nf4 : fp4;
}

/// Seven powers of ten, the larger the finer, both signs, zero and one.
const std::vector<float>& nested_quant_map() {
  static const std::vector<float> made = [] {
    std::vector<Tensor> parts;
    for (int power = 0; power < 7; ++power) {
      const int64_t steps = int64_t{1} << power;
      const Tensor edges = at::linspace(0.1, 1.0, steps + 1, at::kFloat);
      const Tensor middle = edges.narrow(0, 0, steps).add(edges.narrow(0, 1, steps)).div(2.0);
      parts.push_back(middle.mul(std::pow(10.0, power - 6)));
      parts.push_back(parts.back().neg());
    }
    parts.push_back(from_values(std::vector<float>{0.0F, 1.0F}, {2}));
    const Tensor sorted = std::get<0>(at::sort(at::cat(parts)));
    return std::vector<float>(sorted.data_ptr<float>(), sorted.data_ptr<float>() + sorted.numel());
  }();
  return made;
}

}  // namespace lockstep
