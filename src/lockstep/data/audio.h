// Sound from files, as speech models hear it: decoded, mixed to one channel, at one rate.
//
// Example:
//   const Audio audio = load_audio("clips/a.mp3", "rows.jsonl:3");                       // 16 kHz
//   const Audio short_one = load_audio(path, where, {.max_seconds = 30, .why = "the audio tower reads 30 s"});
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// One channel; all samples are finite, and full scale is 1.
struct Audio {
  int64_t rate = 16000;
  std::vector<float> samples;

  double seconds() const { return static_cast<double>(samples.size()) / static_cast<double>(rate); }
};

/// What a clip may be, and what it becomes. A longer one is refused, never cut.
struct AudioLimits {
  int64_t rate = 16000;  // samples a second of what is returned
  double max_seconds = 7200;
  std::string why = "longer recordings are no clips";  // of max_seconds, for the message
};

inline constexpr int64_t kMaxAudioChannels = 8;
inline constexpr int64_t kMinAudioRate = 2000, kMaxAudioRate = 384'000;  // of a file

/// WAV (8 to 32 bit, float, A-law, mu-law, ADPCM), FLAC, MP3, Ogg (Vorbis, Opus) by content, not by name: the same samples as
/// librosa.load(path, sr=rate, mono=True). Channels are averaged before the rate is changed, which soxr does at its high
/// quality. A file that is cut short, or damaged, is refused: nothing is filled with silence. Memory is what the sound
/// really takes, whatever a header says. Throws UserError(kData) with `where`.
Audio decode_audio(std::string_view bytes, const std::string& where, const AudioLimits& limits = {});

/// A path (files up to 1 GiB), or a data: URI with base64. Throws UserError(kData) naming both `reference` and `where` (the
/// row).
Audio load_audio(const std::string& reference, const std::string& where, const AudioLimits& limits = {});

}  // namespace lockstep
