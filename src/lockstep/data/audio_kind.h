// What a file of sound is, by its first bytes, and whether all of it is there. Decoders read what is left of a file that is cut
// short and say nothing: so its parts are counted here first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

enum class AudioKind : uint8_t { kWav, kFlac, kMp3, kOgg };
const char* audio_kind_name(AudioKind kind);  // "WAV", "FLAC", "MP3", "Ogg"

/// A kind, and the bytes without the ID3 tags before them.
struct KnownAudio {
  AudioKind kind;
  std::string_view bytes;
};

/// Throws UserError(kData) that names what was found instead, with what converts it.
KnownAudio known_audio(std::string_view bytes, const std::string& where);

/// What a decoder cannot see or does not tell: chunks and pages beyond the end, pages and frames that are missing or
/// damaged. All throw UserError(kData).
void check_whole_wav(std::string_view bytes, const std::string& where);
void check_whole_ogg(std::string_view bytes, const std::string& where);

/// Of an MP3 what a decoder is to get.
struct WholeMp3 {
  std::string_view bytes;  // frames alone, without the tags behind them and a header that states another number of them
  std::optional<int64_t> samples;  // of each channel, where no header in `bytes` states them
};
WholeMp3 whole_mp3(std::string_view bytes, const std::string& where);  // checks as those above

/// As they do, by what it is; of an MP3 `bytes` become what a decoder is to get. How many samples each channel has, where that
/// was counted.
std::optional<int64_t> check_whole(KnownAudio& audio, const std::string& where);

/// "… is cut short: ", numbers, and what to do.
[[noreturn]] void refuse_cut_audio(AudioKind kind, const std::string& what, const std::string& where);

}  // namespace lockstep
