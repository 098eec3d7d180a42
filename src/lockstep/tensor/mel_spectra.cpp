#include "lockstep/tensor/mel_spectra.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr std::array<int64_t, 3> kRadices{4, 2, 5};

/// e^(-2 pi i k / n), behind `to`.
void add_turn(std::vector<double>& to, int64_t k, int64_t n) {
  const double angle = -2.0 * std::numbers::pi * static_cast<double>(k % n) / static_cast<double>(n);
  to.push_back(std::cos(angle));
  to.push_back(std::sin(angle));
}

/// Of a complex transform of n numbers that needs no reordering. Source: Stockham's autosort algorithm, decimation in
/// frequency.
void add_stages(kernels::MelTables& tables, int64_t n) {
  int64_t stride = 1;
  for (const int64_t radix : kRadices) {
    for (; n % radix == 0; stride *= radix) {
      const int64_t groups = n / radix;
      tables.stages.push_back({radix, groups, stride, static_cast<int64_t>(tables.turns.size())});
      for (int64_t p = 0; p < groups; ++p) {
        for (int64_t k = 1; k < radix; ++k) add_turn(tables.turns, p * k, n);
      }
      n = groups;
    }
  }
}

void add_bands(kernels::MelTables& tables, const MelSpectraParts& parts) {
  const int64_t powers = parts.n_fft / 2 + 1;
  for (int64_t bin = 0; bin < parts.bins; ++bin) {
    const auto weight = [&](int64_t power) { return parts.filters.at(static_cast<size_t>(power * parts.bins + bin)); };
    int64_t first = 0, end = powers;
    while (first < end && weight(first) == 0) ++first;
    while (end > first && weight(end - 1) == 0) --end;
    tables.bands.push_back({first, end - first, static_cast<int64_t>(tables.weights.size())});
    for (int64_t power = first; power < end; ++power) tables.weights.push_back(weight(power));
  }
}

}  // namespace

bool is_fft_size(int64_t n_fft) {
  if (n_fft < 16 || n_fft > 4096 || n_fft % 2 != 0) return false;
  while (n_fft % 2 == 0) n_fft /= 2;
  while (n_fft % 5 == 0) n_fft /= 5;
  return n_fft == 1;
}

MelSpectra::MelSpectra(const MelSpectraParts& parts) {
  check(is_fft_size(parts.n_fft) && parts.hop > 0 && parts.bins > 0, "a transform of a size that there is");
  check(static_cast<int64_t>(parts.window.size()) == parts.n_fft, "a weight for each sample of a frame");
  check(static_cast<int64_t>(parts.filters.size()) == (parts.n_fft / 2 + 1) * parts.bins, "a weight for each power");
  tables_.n_fft = parts.n_fft;
  tables_.hop = parts.hop;
  tables_.floor = static_cast<float>(parts.floor);
  tables_.window = parts.window;
  add_stages(tables_, parts.n_fft / 2);
  for (int64_t k = 0; k <= parts.n_fft / 2; ++k) add_turn(tables_.unfold, k, parts.n_fft);
  add_bands(tables_, parts);
}

float MelSpectra::run(std::span<const float> samples, int64_t frames, std::span<float> out, int64_t stride) const {
  const int64_t whole = (frames + kernels::kMelFrames - 1) / kernels::kMelFrames * kernels::kMelFrames;
  const auto bins = static_cast<int64_t>(tables_.bands.size());
  check(frames > 0 && static_cast<int64_t>(samples.size()) >= (frames - 1) * tables_.hop + tables_.n_fft,
        "samples for every frame");
  check(stride >= whole && static_cast<int64_t>(out.size()) >= (bins - 1) * stride + whole, "room for every frame");
  std::vector<double> scratch(static_cast<size_t>(4 * tables_.n_fft * kernels::kMelFrames));
  const kernels::MelKernel kernel = kernels::mel_kernel();
  float largest = -std::numeric_limits<float>::infinity();
  for (int64_t at = 0; at < frames; at += kernels::kMelFrames) {
    largest =
        std::max(largest, kernel(tables_, samples.data() + at * tables_.hop, std::min(kernels::kMelFrames, frames - at),
                                 out.data() + at, stride, scratch.data()));
  }
  return largest;
}

}  // namespace lockstep
