#include <array>
#include <map>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/audio_kind.h"

namespace lockstep {

namespace {

constexpr size_t kHeader = 27;

uint32_t little_endian_32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

/// Ogg's: polynomial 0x04C11DB7, not reflected; the field itself counts as zeros.
uint32_t checksum(std::string_view page) {
  static const auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      uint32_t value = i << 24;
      for (int bit = 0; bit < 8; ++bit) value = value << 1 ^ ((value >> 31) != 0 ? 0x04C1'1DB7U : 0U);
      table[i] = value;
    }
    return table;
  }();
  uint32_t sum = 0;
  for (size_t i = 0; i < page.size(); ++i) {
    const auto byte = i >= 22 && i < 26 ? uint8_t{0} : static_cast<uint8_t>(page[i]);
    sum = sum << 8 ^ kTable[(sum >> 24 ^ byte) & 255U];
  }
  return sum;
}

/// The page at `at`; refuses one that ends beyond the file, or whose checksum fails.
std::string_view page_at(std::string_view bytes, size_t at, const std::string& where) {
  const auto refuse = [&](const char* why) {
    refuse_cut_audio(AudioKind::kOgg, fmt::format("the page at byte {} of {} {}", at, bytes.size(), why), where);
  };
  std::string_view page = bytes.substr(at);
  if (!page.starts_with("OggS")) refuse("does not begin as one");
  const size_t table = page.size() < kHeader ? 0 : static_cast<uint8_t>(page[26]);
  size_t length = kHeader + table;
  if (page.size() < length) refuse("is not all there");
  for (size_t i = 0; i < table; ++i) length += static_cast<uint8_t>(page[kHeader + i]);
  if (page.size() < length) refuse("is not all there");
  page = page.substr(0, length);
  if (checksum(page) != little_endian_32(page, 22)) refuse("has another checksum than it states");
  return page;
}

}  // namespace

void check_whole_ogg(std::string_view bytes, const std::string& where) {
  struct Stream {
    uint32_t next = 0;
    bool ended = false;
  };
  std::map<uint32_t, Stream> streams;
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view page = page_at(bytes, at, where);
    const auto flags = static_cast<uint8_t>(page[5]);
    const uint32_t serial = little_endian_32(page, 14), number = little_endian_32(page, 18);
    if ((flags & 2) != 0 && !streams.empty()) {  // decoders read the first and leave out the others
      throw data_error(fmt::format("{}: expected one stream of sound in the Ogg file, found several", where),
                       "write it as one: ffmpeg -i IN -vn OUT.flac");
    }
    Stream& stream = streams[serial];
    if (number != stream.next) {
      refuse_cut_audio(AudioKind::kOgg, fmt::format("page {} is missing at byte {}", stream.next, at), where);
    }
    stream.next = number + 1;
    stream.ended = (flags & 4) != 0;
    at += page.size();
  }
  for (const auto& [serial, stream] : streams) {
    if (!stream.ended) refuse_cut_audio(AudioKind::kOgg, "it has no last page", where);
  }
}

}  // namespace lockstep
