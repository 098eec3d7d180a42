#include <algorithm>

#include <fmt/format.h>

#include "lockstep/data/audio_kind.h"

namespace lockstep {

namespace {

uint64_t little_endian(std::string_view bytes, size_t at, size_t count) {
  uint64_t value = 0;
  for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

/// What programs write that cannot go back to a header, as into a pipe: the sound goes on to the end of the file.
/// They write the most that fits 31 or 32 bits, some of them less a header and whole blocks.
bool says_nothing(uint64_t length) { return length >= 0xFFFF'F000 || (length >= 0x7FFF'F000 && length <= 0x8000'0000); }

}  // namespace

void check_whole_wav(std::string_view bytes, const std::string& where) {
  uint64_t length_64 = 0;
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const std::string_view name = bytes.substr(at, 4);
    const size_t rest = bytes.size() - at - 8;
    uint64_t length = little_endian(bytes, at + 4, 4);
    if (name == "ds64" && length >= 16 && rest >= 16) length_64 = little_endian(bytes, at + 16, 8);
    if (name == "data") {
      if (length == 0xFFFF'FFFF && bytes.starts_with("RF64")) {
        length = length_64;
      } else if (says_nothing(length)) {
        return;
      }
      if (length <= rest && (length > 0 || rest == 0)) return;
      refuse_cut_audio(AudioKind::kWav, fmt::format("its header states {} bytes of sound, {} are there", length, rest),
                       where);
    }
    const uint64_t padded = length + length % 2;
    if (padded > rest) break;
    at += 8 + static_cast<size_t>(padded);
  }
  refuse_cut_audio(AudioKind::kWav, fmt::format("its {} bytes hold no chunk of sound", bytes.size()), where);
}

}  // namespace lockstep
