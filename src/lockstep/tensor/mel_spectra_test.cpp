#include "lockstep/tensor/mel_spectra.h"

#include <cmath>
#include <complex>
#include <numbers>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Filters that let one frequency through each.
MelSpectraParts bare(int64_t n_fft) {
  MelSpectraParts parts{.n_fft = n_fft, .hop = 3, .bins = n_fft / 2 + 1};
  parts.window.assign(static_cast<size_t>(n_fft), 1.0);
  parts.filters.assign(static_cast<size_t>(parts.bins * parts.bins), 0.0);
  for (int64_t i = 0; i < parts.bins; ++i) parts.filters[static_cast<size_t>(i * (parts.bins + 1))] = 1;
  return parts;
}

TEST(MelSpectra, EverySizeIsTransformed) {
  for (const int64_t n_fft : {16, 20, 50, 80, 128, 250, 400}) {
    const int64_t frames = 19;  // not a multiple of what is done together
    std::vector<float> samples(static_cast<size_t>(n_fft + 3 * (frames - 1)));
    for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(i * 7919 % 211) / 211.0F - 0.4F;
    const MelSpectra spectra(bare(n_fft));
    std::vector<float> out(static_cast<size_t>((n_fft / 2 + 1) * 32));
    const float largest = spectra.run(samples, frames, out, 32);
    float most = -100;
    for (const int64_t frame : {0, 7, 15, 16, 18}) {
      for (int64_t k = 0; k <= n_fft / 2; ++k) {
        std::complex<double> sum;
        for (int64_t i = 0; i < n_fft; ++i) {
          sum +=
              static_cast<double>(samples[static_cast<size_t>(frame * 3 + i)]) *
              std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i * k % n_fft) / static_cast<double>(n_fft));
        }
        const float found = out[static_cast<size_t>(k * 32 + frame)];
        EXPECT_NEAR(found, std::log10(std::max(1e-10, std::norm(sum))), 2e-6) << n_fft << " " << frame << " " << k;
        most = std::max(most, found);
      }
    }
    EXPECT_GE(largest, most);
  }
}

TEST(MelSpectra, TheKernelsOfAllInstructionSetsAgree) {
  std::vector<float> samples(400 + 3 * 15);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = std::sin(static_cast<float>(i * i % 1013));
  const MelSpectra spectra(bare(400));
  std::vector<float> out(201 * 16), other(201 * 16);
  const float largest = spectra.run(samples, 16, out, 16);
  std::vector<double> scratch(4 * 400 * 16);
  const float found = kernels::mel_frames_v2(spectra.tables(), samples.data(), 16, other.data(), 16, scratch.data());
  EXPECT_NEAR(found, largest, 1e-6);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], other[i], 1e-6);
}

TEST(MelSpectra, SizesThatCannotBeTransformedAreKnown) {
  for (const int64_t size : {16, 400, 512, 1000, 4096}) EXPECT_TRUE(is_fft_size(size)) << size;
  for (const int64_t size : {-400, 0, 2, 15, 401, 402, 480, 4098, 8192}) EXPECT_FALSE(is_fft_size(size)) << size;
  EXPECT_THROW(MelSpectra(MelSpectraParts{.n_fft = 402, .bins = 1}), InternalError);
}

}  // namespace
}  // namespace lockstep
