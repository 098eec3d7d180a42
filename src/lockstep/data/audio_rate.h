// Another number of samples a second, as librosa.resample(res_type="soxr_hq") makes it; a stretch at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

class AudioRate {
 public:
  /// Both from 1; the same rate passes samples on.
  AudioRate(int64_t from, int64_t to);
  ~AudioRate();
  AudioRate(const AudioRate&) = delete;
  AudioRate& operator=(const AudioRate&) = delete;

  /// Appends what is ready to `out`. However the samples are cut into stretches, the result is the same.
  void push(std::span<const float> samples, std::vector<float>& out);
  /// Appends the rest. `out`, of which everything was appended here, then has ceil(samples * to / from) samples.
  void finish(std::vector<float>& out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
