// Banks of triangular filters on the mel scale, as Slaney's Auditory Toolbox defines it: what Whisper's features are
// made with.
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

struct MelFilterConfig {
  int64_t bins = 80, n_fft = 400;
  double rate = 16000, min_frequency = 0, max_frequency = 8000;
};

/// [n_fft / 2 + 1, bins]: how much of the power at each frequency of a transform goes to each bin; each triangle has the
/// area 2 / Hz.
/// Source: transformers 5.23 audio_utils.py mel_filter_bank(norm="slaney", mel_scale="slaney").
std::vector<double> mel_filters(const MelFilterConfig& config);

}  // namespace lockstep
