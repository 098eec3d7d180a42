// Which source pixels make a pixel of one axis of a resized image, and with which fixed-point weights.
//
// Pillow and torchvision take the same filter at the same places, and differ in how exact a weight is, which shows in
// the last level of some pixels. Used by resize() alone.
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/image.h"

namespace lockstep {

/// For each output position the source positions first, first + 1, … and their weights. A weight is
/// low + high * 2^kHighShift in units of 2^-fraction_bits; both parts fit what multiplies fastest.
struct ResampleTaps {
  static constexpr int kHighShift = 12;

  std::vector<int64_t> first, count;
  std::vector<int16_t> low, high;  // [positions, stride]; high is empty where low says all
  size_t stride = 0;               // even; weights beyond count are zero
  int fraction_bits = 0;
};

/// From `from` pixels to `to`. The filter is any but kNearest.
ResampleTaps make_resample_taps(int64_t from, int64_t to, Resample filter, ImageBackend backend);

}  // namespace lockstep
