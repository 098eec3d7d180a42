// Sound to log-mel features, as transformers' WhisperFeatureExtractor makes them: what the audio towers of Whisper's kind
// read.
//
// Example:
//   const LogMelMaker maker(read_log_mel_config(read_json(path), path));
//   const LogMel mel = maker.make(load_audio("a.wav", "rows.jsonl:3").samples, "rows.jsonl:3: audio a.wav");
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/tensor/mel_spectra.h"

namespace lockstep {

struct LogMelConfig {
  int64_t bins = 80;               // or 128
  int64_t n_fft = 400, hop = 160;  // samples
  int64_t rate = 16000;            // samples a second
  /// A clip counts as if silence followed up to so many samples: frames at its end see silence, and the largest value of
  /// all, to which the smallest are lifted, is that of the padded clip. 0: a clip stands alone, mirrored at its end.
  int64_t padded_samples = 480000;
  bool frames_of_padding = false;  // also give those that hold silence alone: as many frames as padded_samples has
  bool frames_first = false;       // values are [frames, bins] instead of [bins, frames]
};

struct LogMel {
  int64_t bins = 0, frames = 0;
  std::vector<float> values = {};  // [bins, frames], or as frames_first says
  float silence = 0;               // the value of frames that hold silence alone
};

/// feature_size, n_fft, hop_length, sampling_rate, chunk_length of preprocessor_config.json. Throws UserError(kCheckpoint)
/// for what is not a WhisperFeatureExtractor's or what would change values and is not done here (dither, padding with other
/// values than 0).
LogMelConfig read_log_mel_config(const Json& json, const std::string& where);

/// Immutable and thread-safe.
class LogMelMaker {
 public:
  explicit LogMelMaker(const LogMelConfig& config);

  const LogMelConfig& config() const { return config_; }
  /// Frames of a clip of so many samples: ceil(samples / hop) where it is padded, else those that it fills.
  int64_t frames_of(int64_t samples) const;
  /// Samples are finite and below 1e6 (load_audio's are). Throws UserError(kData) for a clip longer than padded_samples (cut
  /// it, or give its pieces), or, where it stands alone, no longer than half a frame.
  LogMel make(std::span<const float> samples, const std::string& where) const;

 private:
  LogMelConfig config_;
  MelSpectra spectra_;
};

}  // namespace lockstep
