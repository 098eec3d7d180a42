// Frames of sound to the logarithms of what a bank of filters lets through of their spectra: window, real Fourier transform,
// power, filters, log10. One thread; results depend on the instruction set alone.
//
// Example:
//   const MelSpectra spectra({.n_fft = 400, .hop = 160, .window = hann, .filters = slaney, .bins = 80});
//   const float largest = spectra.run(padded_samples, frames, out, stride);   // out[bin * stride + frame]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// What a MelSpectra is made of. n_fft / 2 is a product of 2 and 5 alone (n_fft of 16 to 4096: is_fft_size).
struct MelSpectraParts {
  int64_t n_fft = 400, hop = 160;
  std::vector<double> window;   // [n_fft]
  std::vector<double> filters;  // [n_fft / 2 + 1, bins]
  int64_t bins = 0;
  double floor = 1e-10;  // less power than this counts as this
};

namespace kernels {

/// A part of a transform: `groups` butterflies of `radix` numbers, `stride` of each beside one another.
struct FftStage {
  int64_t radix, groups, stride;
  int64_t turns;  // where its [groups, radix - 1] complex factors begin
};

/// A filter: the powers first, first + 1, … times weights.
struct MelBand {
  int64_t first, count, weights;
};

/// What the kernels read.
struct MelTables {
  int64_t n_fft = 0, hop = 0;
  std::vector<double> window, turns, unfold, weights;  // turns, unfold: complex
  std::vector<FftStage> stages;
  std::vector<MelBand> bands;
  float floor = 0;
};

/// Frames that are transformed together, one a lane.
inline constexpr int64_t kMelFrames = 16;

/// `frames` (1 to kMelFrames) frames, the first at `samples`: writes kMelFrames numbers for each band, `stride` from band to
/// band, of which those beyond `frames` repeat the last; the largest number. `scratch` holds 4 * n_fft * kMelFrames doubles.
using MelKernel = float (*)(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                            double* scratch);
float mel_frames_v2(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                    double* scratch);
float mel_frames_v3(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                    double* scratch);
float mel_frames_v4(const MelTables& tables, const float* samples, int64_t frames, float* out, int64_t stride,
                    double* scratch);
/// The one for this machine.
MelKernel mel_kernel();

}  // namespace kernels

/// Whether frames of so many samples can be transformed.
bool is_fft_size(int64_t n_fft);

/// Immutable and thread-safe.
class MelSpectra {
 public:
  explicit MelSpectra(const MelSpectraParts& parts);

  /// Frame f is samples [f * hop, f * hop + n_fft). out[bin * stride + f] becomes log10 of what the filter lets through;
  /// stride is at least `frames` rounded up to a multiple of kernels::kMelFrames, and all of it is written. Returns the
  /// largest.
  float run(std::span<const float> samples, int64_t frames, std::span<float> out, int64_t stride) const;

  const kernels::MelTables& tables() const { return tables_; }  // what the kernels read

 private:
  kernels::MelTables tables_;
};

}  // namespace lockstep
