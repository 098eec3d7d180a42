// Separable resampling in 8-bit fixed point, as Pillow and torch do it: a pass an axis, rounded to 8 bits between them.
// Source: Pillow 13.0 src/libImaging/Resample.c (order of the passes), Geometry.c (nearest); PyTorch 2.11
// aten/src/ATen/native/cpu/UpSampleKernel.cpp; torchvision 0.26 transforms/v2/functional/_geometry.py (resize_image).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <emmintrin.h>  // SSE2, which every x86-64 has
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_codecs.h"
#include "lockstep/data/resample_taps.h"

namespace lockstep {

namespace {

constexpr size_t kLanes = 16;  // bytes that are weighted at once

/// What std::array can hold: the type itself has attributes that a template argument loses.
struct Vector {
  __m128i bits;
};

__m128i load_lanes(const uint8_t* from) {
  __m128i bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}
void store_lanes(uint8_t* to, __m128i bytes) { std::memcpy(to, &bytes, sizeof bytes); }

/// Two neighbouring weights in every 32 bits.
__m128i weight_pair(const int16_t* weights) {
  int32_t pair = 0;
  std::memcpy(&pair, weights, sizeof pair);
  return _mm_set1_epi32(pair);
}

using Sums = std::array<Vector, 4>;  // 16 of 32 bits

/// To each sum two neighbouring bytes, which stand in 16 bits each, times their weights.
void add_weighted(Sums& sums, const Sums& pairs, __m128i weights) {
  for (size_t p = 0; p < sums.size(); ++p)
    sums[p].bits = _mm_add_epi32(sums[p].bits, _mm_madd_epi16(pairs[p].bits, weights));
}

/// 16 bytes of output position i: sums of source bytes `step` apart, times their weights. kWide: with the high parts.
template <bool kWide>
__m128i weighted_lanes(const ResampleTaps& taps, size_t i, const uint8_t* from, size_t step) {
  const int64_t count = taps.count[i];
  const __m128i zero = _mm_setzero_si128();
  Sums sums, high;
  sums.fill({_mm_set1_epi32(1 << (taps.fraction_bits - 1))});
  high.fill({zero});
  for (int64_t k = 0; k < count; k += 2, from += 2 * step) {
    const __m128i one = load_lanes(from), two = k + 1 < count ? load_lanes(from + step) : zero;
    const __m128i front = _mm_unpacklo_epi8(one, two), back = _mm_unpackhi_epi8(one, two);
    const Sums pairs{{{_mm_unpacklo_epi8(front, zero)},
                      {_mm_unpackhi_epi8(front, zero)},
                      {_mm_unpacklo_epi8(back, zero)},
                      {_mm_unpackhi_epi8(back, zero)}}};
    const size_t at = i * taps.stride + static_cast<size_t>(k);
    add_weighted(sums, pairs, weight_pair(&taps.low[at]));
    if constexpr (kWide) add_weighted(high, pairs, weight_pair(&taps.high[at]));
  }
  const __m128i bits = _mm_cvtsi32_si128(taps.fraction_bits);
  for (size_t p = 0; p < sums.size(); ++p) {
    __m128i& sum = sums[p].bits;
    if constexpr (kWide) sum = _mm_add_epi32(sum, _mm_slli_epi32(high[p].bits, ResampleTaps::kHighShift));
    sum = _mm_sra_epi32(sum, bits);
  }
  return _mm_packus_epi16(_mm_packs_epi32(sums[0].bits, sums[1].bits),
                          _mm_packs_epi32(sums[2].bits, sums[3].bits));  // held within 0..255
}

using Block = std::array<Vector, kLanes>;  // 16 rows of 16 bytes

Block transposed(Block rows) {
  // Each round interleaves row r with row r + 8; after four rounds byte (r, c) has come to (c, r).
  for (int round = 0; round < 4; ++round) {
    Block next;
    for (size_t r = 0; r < kLanes / 2; ++r) {
      next[2 * r].bits = _mm_unpacklo_epi8(rows[r].bits, rows[r + kLanes / 2].bits);
      next[2 * r + 1].bits = _mm_unpackhi_epi8(rows[r].bits, rows[r + kLanes / 2].bits);
    }
    rows = next;
  }
  return rows;
}

/// A turned part of 16 rows: byte b of row r stands at bytes[b * 16 + r]. With room for whole blocks.
struct Strip {
  std::vector<uint8_t> bytes;

  void make_room(size_t wide) {
    const size_t blocks = (wide + kLanes - 1) / kLanes;
    if (bytes.size() < blocks * kLanes * kLanes) bytes.resize(blocks * kLanes * kLanes);
  }

  void take(const std::array<const uint8_t*, kLanes>& rows, size_t wide) {
    Block block;
    for (size_t b = 0; b < wide; b += kLanes) {
      for (size_t r = 0; r < kLanes; ++r) {
        block[r].bits = _mm_setzero_si128();
        std::memcpy(&block[r], rows[r] + b, std::min(kLanes, wide - b));
      }
      block = transposed(block);
      std::memcpy(&bytes[b * kLanes], block.data(), sizeof block);
    }
  }

  /// Into the first `count` rows, which are `row` bytes apart.
  void give(size_t wide, uint8_t* rows, size_t row, size_t count) const {
    Block block;
    for (size_t b = 0; b < wide; b += kLanes) {
      std::memcpy(block.data(), &bytes[b * kLanes], sizeof block);
      block = transposed(block);
      for (size_t r = 0; r < count; ++r) std::memcpy(rows + r * row + b, &block[r], std::min(kLanes, wide - b));
    }
  }
};

/// Output positions that are made at once, and the source positions that they need.
struct Stretch {
  size_t begin, end, from, to;
};

/// What fits the nearest cache; at least one output position.
Stretch stretch_from(size_t begin, const ResampleTaps& taps) {
  constexpr size_t kMost = 512;
  const auto end_of = [&](size_t x) { return static_cast<size_t>(taps.first[x] + taps.count[x]); };
  Stretch part{begin, begin + 1, static_cast<size_t>(taps.first[begin]), end_of(begin)};
  while (part.end < taps.first.size() && part.end - begin < kMost && end_of(part.end) - part.from <= kMost)
    part.to = std::max(part.to, end_of(part.end++));
  return part;
}

/// 16 rows at a time, turned so that bytes of one column lie side by side.
template <bool kWide>
Image resample_across(const Image& image, int64_t width, const ResampleTaps& taps) {
  constexpr size_t kPixel = 3 * kLanes;
  const auto in_row = static_cast<size_t>(image.width * 3), out_row = static_cast<size_t>(width * 3);
  const auto height = static_cast<size_t>(image.height);
  Image out{.width = width, .height = image.height, .pixels = std::vector<uint8_t>(out_row * height)};
  Strip source, made;
  for (size_t begin = 0; begin < static_cast<size_t>(width);) {
    const Stretch part = stretch_from(begin, taps);
    const size_t source_bytes = (part.to - part.from) * 3, made_bytes = (part.end - part.begin) * 3;
    source.make_room(source_bytes);
    made.make_room(made_bytes);
    for (size_t y = 0; y < height; y += kLanes) {
      std::array<const uint8_t*, kLanes> rows{};
      for (size_t r = 0; r < kLanes; ++r) rows[r] = &image.pixels[std::min(y + r, height - 1) * in_row + part.from * 3];
      source.take(rows, source_bytes);
      for (size_t x = part.begin; x < part.end; ++x) {
        const uint8_t* from = &source.bytes[(static_cast<size_t>(taps.first[x]) - part.from) * kPixel];
        uint8_t* to = &made.bytes[(x - part.begin) * kPixel];
        for (size_t c = 0; c < kPixel; c += kLanes)
          store_lanes(to + c, weighted_lanes<kWide>(taps, x, from + c, kPixel));
      }
      made.give(made_bytes, &out.pixels[y * out_row + part.begin * 3], out_row, std::min(kLanes, height - y));
    }
    begin = part.end;
  }
  return out;
}

template <bool kWide>
Image resample_down(const Image& image, int64_t height, const ResampleTaps& taps) {
  const auto bytes = static_cast<size_t>(image.width * 3), rows = static_cast<size_t>(image.height);
  Image out{
      .width = image.width, .height = height, .pixels = std::vector<uint8_t>(bytes * static_cast<size_t>(height))};
  const size_t rest = bytes % kLanes, whole = bytes - rest;
  std::vector<uint8_t> margin(rows * kLanes);  // the last bytes of each row, with room to read 16
  for (size_t y = 0; rest > 0 && y < rows; ++y)
    std::copy_n(&image.pixels[y * bytes + whole], rest, &margin[y * kLanes]);
  for (size_t y = 0; y < static_cast<size_t>(height); ++y) {
    const auto first = static_cast<size_t>(taps.first[y]);
    uint8_t* to = &out.pixels[y * bytes];
    for (size_t x = 0; x < whole; x += kLanes)
      store_lanes(to + x, weighted_lanes<kWide>(taps, y, &image.pixels[first * bytes + x], bytes));
    if (rest == 0) continue;
    const __m128i last = weighted_lanes<kWide>(taps, y, &margin[first * kLanes], kLanes);
    std::memcpy(to + whole, &last, rest);
  }
  return out;
}

Image to_width(const Image& image, int64_t width, Resample filter, ImageBackend backend) {
  if (width == image.width) return image;
  const ResampleTaps taps = make_resample_taps(image.width, width, filter, backend);
  return taps.high.empty() ? resample_across<false>(image, width, taps) : resample_across<true>(image, width, taps);
}

Image to_height(const Image& image, int64_t height, Resample filter, ImageBackend backend) {
  if (height == image.height) return image;
  const ResampleTaps taps = make_resample_taps(image.height, height, filter, backend);
  return taps.high.empty() ? resample_down<false>(image, height, taps) : resample_down<true>(image, height, taps);
}

/// The source index of each output position; the coordinate is summed up, not multiplied, as in Pillow.
std::vector<int64_t> pillow_nearest(int64_t from, int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  std::vector<int64_t> indices;
  double at = step * 0.5;
  for (int64_t i = 0; i < to; ++i, at += step) indices.push_back(static_cast<int64_t>(at));
  return indices;
}

/// The same in single precision (torch's nearest-exact, without fused multiply-adds).
std::vector<int64_t> torch_nearest(int64_t from, int64_t to) {
  const float step = static_cast<float>(from) / static_cast<float>(to);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < to; ++i) {
    const float at = std::max(0.0F, step * (static_cast<float>(i) + 0.5F) - 0.5F);
    indices.push_back(std::min(from - 1, static_cast<int64_t>(std::floor(at + 0.5F))));
  }
  return indices;
}

Image resize_nearest(const Image& image, int64_t width, int64_t height, ImageBackend backend) {
  Image out{.width = width, .height = height, .pixels = std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  const auto indices = backend == ImageBackend::kPillow ? pillow_nearest : torch_nearest;
  const auto columns = indices(image.width, width), rows = indices(image.height, height);
  uint8_t* to = out.pixels.data();
  for (const int64_t y : rows) {
    for (const int64_t x : columns) {
      // Summed rounding errors may step over the edge; Pillow leaves such pixels black.
      if (x < image.width && y < image.height)
        std::copy_n(&image.pixels[static_cast<size_t>((y * image.width + x) * 3)], 3, to);
      to += 3;
    }
  }
  return out;
}

}  // namespace

Image resize(const Image& image, int64_t width, int64_t height, Resample filter, ImageBackend backend) {
  using enum Resample;
  check_image_size(width, height, "the resized picture");
  check(width > 0 && height > 0 && image.width > 0 && image.height > 0,
        fmt::format("resize: {}x{} to {}x{}", image.width, image.height, width, height));
  if (width == image.width && height == image.height) return image;
  if (filter == kNearest) return resize_nearest(image, width, height, backend);
  if (filter != kBilinear && filter != kBicubic) backend = ImageBackend::kPillow;  // torchvision has no others
  // The order shows in the rounding. torch always goes across first, as Pillow did before 13.
  const int64_t lost_rows = image.height - height, lost_columns = image.width - width;
  if (backend == ImageBackend::kPillow && lost_rows > 0 && lost_rows > 2 * lost_columns) {
    return to_width(to_height(image, height, filter, backend), width, filter, backend);
  }
  return to_height(to_width(image, width, filter, backend), height, filter, backend);
}

Image center_crop(const Image& image, int64_t width, int64_t height, ImageBackend backend) {
  check(width > 0 && height > 0, fmt::format("center_crop: to {}x{}", width, height));
  check_image_size(width, height, "the cropped picture");
  // An odd rest stands right and below when cutting. When padding, Pillow's way has it left and above, torchvision's
  // right and below.
  const auto margin = [backend](int64_t rest) {
    return rest >= 0 || backend == ImageBackend::kTorchvision ? rest / 2 : (rest - 1) / 2;
  };
  const int64_t left = margin(image.width - width), top = margin(image.height - height);
  Image out{.width = width, .height = height, .pixels = std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  const int64_t begin = std::max<int64_t>(0, -left), end = std::min(width, image.width - left);
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(height, image.height - top); ++y) {
    const auto from = static_cast<size_t>(((y + top) * image.width + begin + left) * 3);
    std::copy_n(&image.pixels[from], (end - begin) * 3, &out.pixels[static_cast<size_t>((y * width + begin) * 3)]);
  }
  return out;
}

}  // namespace lockstep
