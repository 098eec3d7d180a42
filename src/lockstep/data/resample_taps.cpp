// Source: Pillow 13.0 src/libImaging/Resample.c; PyTorch 2.11 aten/src/ATen/native/cpu/UpSampleKernel.cpp
// (_compute_index_ranges_int16_weights).
#include "lockstep/data/resample_taps.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep {

namespace {

constexpr int kPillowBits = 32 - 8 - 2;  // 8 bits of value, 2 bits of head room for lobes beyond 1
constexpr int kTorchWeightBits = 15;     // the largest weight of an axis uses them all, but for its sign
constexpr int kTorchMostBits = 22;

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

/// One axis: its geometry, and the exact weights of one position after another.
struct Axis {
  Axis(int64_t from_pixels, int64_t to_pixels, Resample chosen)
      : from(from_pixels),
        filter(chosen),
        scale(static_cast<double>(from_pixels) / static_cast<double>(to_pixels)),
        stretch(std::max(scale, 1.0)),
        support(filter_support(chosen) * stretch),
        weights(static_cast<size_t>(std::ceil(support)) * 2 + 1) {}

  /// Sets first, count and that many weights, which sum to 1; the largest of them, or 0.
  double go_to(int64_t position) {
    const double center = (static_cast<double>(position) + 0.5) * scale;
    first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const auto end = std::min<int64_t>(from, static_cast<int64_t>(center + support + 0.5));
    count = std::min(static_cast<size_t>(end - first), weights.size());
    double sum = 0.0, largest = 0.0;
    for (size_t k = 0; k < count; ++k) {
      weights[k] =
          filter_value(filter, (static_cast<double>(k) + static_cast<double>(first) - center + 0.5) * (1.0 / stretch));
      sum += weights[k];
    }
    for (size_t k = 0; k < count; ++k) {
      if (sum != 0.0) weights[k] /= sum;
      largest = std::max(largest, weights[k]);
    }
    return largest;
  }

  int64_t from;
  Resample filter;
  double scale, stretch;  // shrinking widens the filter: antialiasing
  double support;
  std::vector<double> weights;
  int64_t first = 0;
  size_t count = 0;
};

/// As many bits as keep the largest weight within an int16.
int torch_fraction_bits(double largest) {
  int bits = 0;
  while (bits < kTorchMostBits && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < 1 << kTorchWeightBits) ++bits;
  return bits;
}

}  // namespace

ResampleTaps make_resample_taps(int64_t from, int64_t to, Resample filter, ImageBackend backend) {
  Axis axis(from, to, filter);
  const bool wide = backend == ImageBackend::kPillow;
  ResampleTaps taps;
  taps.stride = axis.weights.size() + axis.weights.size() % 2;
  taps.low.resize(static_cast<size_t>(to) * taps.stride);
  if (wide) taps.high.resize(taps.low.size());
  taps.fraction_bits = kPillowBits;
  if (!wide) {
    double largest = 0.0;
    for (int64_t i = 0; i < to; ++i) largest = std::max(largest, axis.go_to(i));
    taps.fraction_bits = torch_fraction_bits(largest);
  }
  for (int64_t i = 0; i < to; ++i) {
    axis.go_to(i);
    taps.first.push_back(axis.first);
    taps.count.push_back(static_cast<int64_t>(axis.count));
    for (size_t k = 0; k < axis.count; ++k) {
      const double scaled = axis.weights[k] * (1 << taps.fraction_bits);
      const auto fixed = static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
      const int32_t high = wide ? fixed >> ResampleTaps::kHighShift : 0;
      const size_t at = static_cast<size_t>(i) * taps.stride + k;
      taps.low[at] = static_cast<int16_t>(fixed - high * (1 << ResampleTaps::kHighShift));
      if (wide) taps.high[at] = static_cast<int16_t>(high);
    }
  }
  return taps;
}

}  // namespace lockstep
