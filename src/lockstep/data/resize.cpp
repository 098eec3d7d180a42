// Pillow's separable resampling in 8-bit fixed point: a pass a dimension, rounded to 8 bits between them.
// Source: Pillow 13.0 src/libImaging/Resample.c (filters, support, coefficient rounding, order), Geometry.c (nearest).
#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/image.h"
#include "lockstep/data/image_codecs.h"

namespace lockstep {

namespace {

constexpr int kFractionBits = 32 - 8 - 2;  // 8 bits of value, 2 bits of head room for lobes beyond 1

double sinc(double x) {
  if (x == 0.0) return 1.0;
  x *= std::numbers::pi;
  return std::sin(x) / x;
}

/// How far a filter reaches, in source pixels at scale 1.
double filter_support(Resample filter) {
  using enum Resample;
  switch (filter) {
    case kBox:
      return 0.5;
    case kBilinear:
    case kHamming:
      return 1.0;
    case kBicubic:
      return 2.0;
    case kLanczos:
      return 3.0;
    case kNearest:
      break;
  }
  return 0.0;
}

double filter_value(Resample filter, double x) {
  using enum Resample;
  if (filter == kBox) return x > -0.5 && x <= 0.5 ? 1.0 : 0.0;
  if (filter == kLanczos) return x >= -3.0 && x < 3.0 ? sinc(x) * sinc(x / 3) : 0.0;
  x = std::abs(x);
  if (filter == kBilinear) return x < 1.0 ? 1.0 - x : 0.0;
  if (filter == kHamming) {
    if (x == 0.0) return 1.0;
    if (x >= 1.0) return 0.0;
    x *= std::numbers::pi;
    return std::sin(x) / x * (0.54F + 0.46F * std::cos(x));  // single-precision constants, as in Pillow
  }
  constexpr double kA = -0.5;  // bicubic
  if (x < 1.0) return ((kA + 2.0) * x - (kA + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0.0;
}

/// The source pixels of one output position: first, how many, and their fixed-point weights at `weights[index *
/// stride]`.
struct Taps {
  std::vector<int64_t> first, count;
  std::vector<int32_t> weights;
  size_t stride = 0;
};

Taps make_taps(int64_t from, int64_t to, Resample filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double stretch = std::max(scale, 1.0);  // shrinking widens the filter: antialiasing
  const double support = filter_support(filter) * stretch;
  Taps taps;
  taps.stride = static_cast<size_t>(std::ceil(support)) * 2 + 1;
  taps.weights.assign(taps.stride * static_cast<size_t>(to), 0);
  std::vector<double> exact(taps.stride);
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const auto end = std::min<int64_t>(from, static_cast<int64_t>(center + support + 0.5));
    const auto count = static_cast<size_t>(end - first);
    double sum = 0.0;
    for (size_t k = 0; k < count; ++k) {
      exact[k] =
          filter_value(filter, (static_cast<double>(k) + static_cast<double>(first) - center + 0.5) * (1.0 / stretch));
      sum += exact[k];
    }
    for (size_t k = 0; k < count; ++k) {
      const double weight = (sum != 0.0 ? exact[k] / sum : exact[k]) * (1 << kFractionBits);
      taps.weights[static_cast<size_t>(i) * taps.stride + k] =
          static_cast<int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    taps.first.push_back(first);
    taps.count.push_back(end - first);
  }
  return taps;
}

uint8_t to_byte(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255)); }

Image resample_horizontal(const Image& image, int64_t width, Resample filter) {
  const Taps taps = make_taps(image.width, width, filter);
  Image out{.width = width,
            .height = image.height,
            .pixels = std::vector<uint8_t>(static_cast<size_t>(width * image.height * 3))};
  uint8_t* to = out.pixels.data();
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.pixels.data() + static_cast<size_t>(y * image.width * 3);
    for (int64_t x = 0; x < width; ++x, to += 3) {
      const auto i = static_cast<size_t>(x);
      const int32_t* weight = &taps.weights[i * taps.stride];
      const uint8_t* from = row + taps.first[i] * 3;
      int32_t red = 1 << (kFractionBits - 1), green = red, blue = red;
      for (int64_t k = 0; k < taps.count[i]; ++k, from += 3) {
        red += from[0] * weight[k];
        green += from[1] * weight[k];
        blue += from[2] * weight[k];
      }
      to[0] = to_byte(red);
      to[1] = to_byte(green);
      to[2] = to_byte(blue);
    }
  }
  return out;
}

Image resample_vertical(const Image& image, int64_t height, Resample filter) {
  const Taps taps = make_taps(image.height, height, filter);
  const auto stride = static_cast<size_t>(image.width * 3);
  Image out{
      .width = image.width, .height = height, .pixels = std::vector<uint8_t>(stride * static_cast<size_t>(height))};
  std::vector<int32_t> sums(stride);  // a whole row at a time: contiguous reads
  for (int64_t y = 0; y < height; ++y) {
    const auto i = static_cast<size_t>(y);
    std::fill(sums.begin(), sums.end(), 1 << (kFractionBits - 1));
    for (int64_t k = 0; k < taps.count[i]; ++k) {
      const uint8_t* from = image.pixels.data() + static_cast<size_t>(taps.first[i] + k) * stride;
      const int32_t weight = taps.weights[i * taps.stride + static_cast<size_t>(k)];
      for (size_t x = 0; x < stride; ++x) sums[x] += from[x] * weight;
    }
    std::transform(sums.begin(), sums.end(), out.pixels.begin() + static_cast<std::ptrdiff_t>(i * stride), to_byte);
  }
  return out;
}

/// The source index of each output position; the coordinate is summed up, not multiplied, as in Pillow.
std::vector<int64_t> nearest_indices(int64_t from, int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  std::vector<int64_t> indices;
  double at = step * 0.5;
  for (int64_t i = 0; i < to; ++i, at += step) indices.push_back(static_cast<int64_t>(at));
  return indices;
}

Image resize_nearest(const Image& image, int64_t width, int64_t height) {
  Image out{.width = width, .height = height, .pixels = std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  const auto columns = nearest_indices(image.width, width), rows = nearest_indices(image.height, height);
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

Image resize(const Image& image, int64_t width, int64_t height, Resample filter) {
  check_image_size(width, height, "the resized picture");
  check(width > 0 && height > 0 && image.width > 0 && image.height > 0,
        fmt::format("resize: {}x{} to {}x{}", image.width, image.height, width, height));
  if (width == image.width && height == image.height) return image;
  if (filter == Resample::kNearest) return resize_nearest(image, width, height);
  if (height == image.height) return resample_horizontal(image, width, filter);
  if (width == image.width) return resample_vertical(image, height, filter);
  // The order shows in the rounding. Pillow before 13 always went across first.
  const int64_t lost_rows = image.height - height, lost_columns = image.width - width;
  if (lost_rows > 0 && lost_rows > 2 * lost_columns) {
    return resample_horizontal(resample_vertical(image, height, filter), width, filter);
  }
  return resample_vertical(resample_horizontal(image, width, filter), height, filter);
}

Image center_crop(const Image& image, int64_t width, int64_t height) {
  check(width > 0 && height > 0, fmt::format("center_crop: to {}x{}", width, height));
  check_image_size(width, height, "the cropped picture");
  // Halves round down, so that an odd rest stands right and below when cutting, left and above when padding.
  const auto floor_half = [](int64_t rest) { return rest >= 0 ? rest / 2 : (rest - 1) / 2; };
  const int64_t left = floor_half(image.width - width), top = floor_half(image.height - height);
  Image out{.width = width, .height = height, .pixels = std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
  const int64_t begin = std::max<int64_t>(0, -left), end = std::min(width, image.width - left);
  for (int64_t y = std::max<int64_t>(0, -top); y < std::min(height, image.height - top); ++y) {
    const auto from = static_cast<size_t>(((y + top) * image.width + begin + left) * 3);
    std::copy_n(&image.pixels[from], (end - begin) * 3, &out.pixels[static_cast<size_t>((y * width + begin) * 3)]);
  }
  return out;
}

}  // namespace lockstep
