// libsndfile over bytes in memory: samples of a file of sound, a block at a time. Used by decode_audio alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/data/audio_kind.h"

namespace lockstep {

class SoundReader {
 public:
  /// Borrows the bytes. `counted`: samples of each channel, where no header of an MP3 states them rightly. Throws UserError(kData) for what libsndfile cannot open, for another kind than `audio` is, and for
  /// codecs that are no speech's.
  SoundReader(const KnownAudio& audio, std::optional<int64_t> counted, const std::string& where);
  ~SoundReader();
  SoundReader(const SoundReader&) = delete;
  SoundReader& operator=(const SoundReader&) = delete;

  int64_t rate() const;
  int64_t channels() const;
  std::optional<int64_t> stated_frames() const;  // what the header says, or was counted; no more are read

  /// Fills whole frames, channels beside one another, full scale 1; how many, 0 at the end. Throws UserError(kData) where the
  /// decoder gives up.
  int64_t read(std::span<float> block);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
