#include "lockstep/data/audio_kind.h"

#include <array>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr const char* kConvert = "convert it once: ffmpeg -i IN -vn -ac 1 -ar 16000 OUT.flac";

/// Of other files: what begins them at `at`, their name, and whether ffmpeg finds sound in them.
struct Other {
  size_t at;
  std::string_view begin;
  const char* name;
  bool has_sound;
};
constexpr std::array<Other, 26> kOthers{
    {{4, "ftyp", "an MP4 or M4A file", true},
     {0, "\xFF\xF1", "an AAC stream", true},
     {0, "\xFF\xF9", "an AAC stream", true},
     {0, "ADIF", "an AAC stream", true},
     {0, "FORM", "an AIFF file", true},
     {0, ".snd", "an AU file", true},
     {0, "caff", "a CAF file", true},
     {0, "riff", "a Wave64 file", true},
     {0, "#!AMR", "an AMR file", true},
     {0, "\x30\x26\xB2\x75", "a WMA file", true},
     {0, "\x1A\x45\xDF\xA3", "a Matroska or WebM file", true},
     {0, "wvpk", "a WavPack file", true},
     {0, "MAC ", "a Monkey's Audio file", true},
     {8, "AVI ", "an AVI film", true},
     {0, "MThd", "a MIDI file: notes, no sound", false},
     {0, "\x89PNG", "a PNG picture", false},
     {0, "\xFF\xD8\xFF", "a JPEG picture", false},
     {8, "WEBP", "a WebP picture", false},
     {0, "GIF8", "a GIF picture", false},
     {0, "BM", "a BMP picture", false},
     {0, "version https://git-lfs", "a Git LFS pointer, not the file itself", false},
     {0, "%PDF", "a PDF", false},
     {0, "<!DOCTYPE", "an HTML page (a download that failed?)", false},
     {0, "<html", "an HTML page (a download that failed?)", false},
     {0, "<?xml", "XML", false},
     {0, "{", "JSON", false}}};

uint8_t byte_at(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

/// MPEG's sync word with a layer; AAC has none there.
bool begins_mp3(std::string_view bytes) {
  return bytes.size() >= 4 && byte_at(bytes, 0) == 0xFF && (byte_at(bytes, 1) & 0xE0) == 0xE0 &&
         (byte_at(bytes, 1) & 0x18) != 0x08 && (byte_at(bytes, 1) & 0x06) != 0 && (byte_at(bytes, 2) & 0xF0) != 0xF0 &&
         (byte_at(bytes, 2) & 0x0C) != 0x0C;
}

/// Taggers put titles and covers before any kind.
std::string_view without_id3(std::string_view bytes) {
  constexpr int kMost = 4;
  for (int i = 0; i < kMost && bytes.size() >= 10 && bytes.starts_with("ID3"); ++i) {
    size_t length = 0;
    for (size_t k = 6; k < 10; ++k) length = length << 7 | (byte_at(bytes, k) & 0x7F);
    const bool has_footer = (byte_at(bytes, 5) & 0x10) != 0;
    bytes.remove_prefix(std::min(bytes.size(), length + (has_footer ? 20 : 10)));
  }
  return bytes;
}

}  // namespace

const char* audio_kind_name(AudioKind kind) {
  constexpr std::array kNames{"WAV", "FLAC", "MP3", "Ogg"};
  return kNames.at(static_cast<size_t>(kind));
}

KnownAudio known_audio(std::string_view bytes, const std::string& where) {
  const std::string expected = fmt::format("{}: expected WAV, FLAC, MP3 or Ogg sound, found", where);
  if (bytes.empty()) throw data_error(expected + " an empty file", "did the download or the copy end?");
  const std::string_view rest = without_id3(bytes);
  if (rest.empty())
    throw data_error(expected + " an ID3 tag and nothing behind it", "did the download or the copy end?");
  const bool wave = rest.size() >= 12 && rest.substr(8, 4) == "WAVE";
  if (wave && (rest.starts_with("RIFF") || rest.starts_with("RF64"))) return {AudioKind::kWav, rest};
  if (rest.starts_with("fLaC")) return {AudioKind::kFlac, rest};
  if (rest.starts_with("OggS")) return {AudioKind::kOgg, rest};
  if (begins_mp3(rest)) return {AudioKind::kMp3, rest};
  for (const Other& other : kOthers) {
    if (rest.size() >= other.at && rest.substr(other.at).starts_with(other.begin))
      throw data_error(fmt::format("{} {}", expected, other.name), other.has_sound ? kConvert : "");
  }
  std::string hex;
  for (const char c : rest.substr(0, 8)) hex += fmt::format(" {:02x}", static_cast<uint8_t>(c));
  throw data_error(fmt::format("{} {} bytes that begin with{}", expected, rest.size(), hex), kConvert);
}

void refuse_cut_audio(AudioKind kind, const std::string& what, const std::string& where) {
  throw data_error(fmt::format("{}: the {} file is cut short or damaged: {}", where, audio_kind_name(kind), what),
                   "fetch it again; if it is what there is, ffmpeg -i IN OUT.flac keeps what can be heard");
}

std::optional<int64_t> check_whole(KnownAudio& audio, const std::string& where) {
  if (audio.kind == AudioKind::kWav) check_whole_wav(audio.bytes, where);
  if (audio.kind == AudioKind::kOgg) check_whole_ogg(audio.bytes, where);
  if (audio.kind != AudioKind::kMp3) return std::nullopt;
  const WholeMp3 whole = whole_mp3(audio.bytes, where);
  audio.bytes = whole.bytes;
  return whole.samples;
}

}  // namespace lockstep
