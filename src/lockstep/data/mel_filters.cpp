#include "lockstep/data/mel_filters.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

namespace {

// Linear up to 1,000 Hz, which is 15 mel, logarithmic above.
constexpr double kHzOfMel = 200.0 / 3.0, kEdgeHz = 1000.0, kEdgeMel = 15.0;

double step_above() { return std::log(6.4) / 27.0; }

double mel_of(double hz) { return hz < kEdgeHz ? hz / kHzOfMel : kEdgeMel + std::log(hz / kEdgeHz) / step_above(); }
double hz_of(double mel) {
  return mel < kEdgeMel ? mel * kHzOfMel : kEdgeHz * std::exp(step_above() * (mel - kEdgeMel));
}

}  // namespace

std::vector<double> mel_filters(const MelFilterConfig& config) {
  const auto bins = static_cast<size_t>(config.bins), powers = static_cast<size_t>(config.n_fft / 2 + 1);
  const double lowest = mel_of(config.min_frequency), highest = mel_of(config.max_frequency);
  std::vector<double> corners(bins + 2);
  for (size_t i = 0; i < corners.size(); ++i) {
    corners[i] = hz_of(lowest + (highest - lowest) * static_cast<double>(i) / static_cast<double>(bins + 1));
  }
  // Half the rate without its fraction, as transformers takes it.
  const double step = std::floor(config.rate / 2) / static_cast<double>(powers - 1);
  std::vector<double> filters(powers * bins);
  for (size_t power = 0; power < powers; ++power) {
    const double hz = step * static_cast<double>(power);
    for (size_t bin = 0; bin < bins; ++bin) {
      const double left = corners[bin], top = corners[bin + 1], right = corners[bin + 2];
      const double height = std::min((hz - left) / (top - left), (right - hz) / (right - top));
      filters[power * bins + bin] = std::max(0.0, height) * (2.0 / (right - left));
    }
  }
  return filters;
}

}  // namespace lockstep
