#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

#include "lockstep/data/audio_kind.h"

namespace lockstep {

namespace {

/// Of a frame's header. Source: ISO 11172-3 2.4.1.3, 13818-3.
struct FrameHeader {
  int version = 0;  // 1, 2; 3: "2.5"
  int layer = 0;
  int64_t rate = 0;
  bool mono = false;
  size_t bytes = 0;  // 0: free format, whose frames do not say how long they are

  int64_t samples() const { return layer == 1 ? 384 : layer == 3 && version != 1 ? 576 : 1152; }
  bool alike(const FrameHeader& other) const {
    return version == other.version && layer == other.layer && rate == other.rate;
  }
};

uint32_t big_endian_32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

/// In thousands of bits a second, by index 1 to 14.
int64_t bit_rate(int version, int layer, uint32_t index) {
  constexpr std::array<std::array<int16_t, 15>, 5> kRates{
      {{0, 32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448},
       {0, 32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384},
       {0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320},
       {0, 32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256},
       {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160}}};
  const size_t row = version == 1 ? static_cast<size_t>(layer - 1) : layer == 1 ? 3 : 4;
  return kRates.at(row).at(index);
}

std::optional<FrameHeader> header_at(std::string_view bytes, size_t at) {
  if (at > bytes.size() || bytes.size() - at < 4) return std::nullopt;
  const uint32_t word = big_endian_32(bytes, at);
  const uint32_t version = word >> 19 & 3, layer = word >> 17 & 3, rates = word >> 12 & 15, rate = word >> 10 & 3;
  if (word >> 21 != 0x7FF || version == 1 || layer == 0 || rates == 15 || rate == 3) return std::nullopt;
  constexpr std::array<int64_t, 3> kRates{44100, 48000, 32000};
  FrameHeader header{.version = version == 3 ? 1 : version == 2 ? 2 : 3, .layer = static_cast<int>(4 - layer)};
  header.rate = kRates.at(rate) >> (header.version - 1);
  header.mono = (word >> 6 & 3) == 3;
  const int64_t bits = bit_rate(header.version, header.layer, rates) * 1000, padding = word >> 9 & 1;
  if (bits == 0) return header;
  const int64_t slots = header.layer == 1 ? 12 : header.layer == 3 && header.version != 1 ? 72 : 144;
  header.bytes = static_cast<size_t>((slots * bits / header.rate + padding) * (header.layer == 1 ? 4 : 1));
  return header;
}

/// Fraunhofer's header, which mpg123 takes for sound.
bool is_vbri(std::string_view frame) { return frame.size() >= 36 + 18 && frame.substr(36, 4) == "VBRI"; }

/// Frames of sound that the first frame speaks of, when it is a Xing, Info or VBRI header.
std::optional<int64_t> stated_frames(std::string_view frame, const FrameHeader& header) {
  const size_t side = header.version == 1 ? (header.mono ? 17 : 32) : (header.mono ? 9 : 17);
  for (const size_t at : {4 + side, 6 + side}) {  // behind a checksum, or not
    if (frame.size() < at + 12) break;
    const std::string_view name = frame.substr(at, 4);
    if (name != "Xing" && name != "Info") continue;
    return (big_endian_32(frame, at + 4) & 1) != 0 ? int64_t{big_endian_32(frame, at + 8)} : -1;
  }
  if (is_vbri(frame)) return big_endian_32(frame, 36 + 14);
  return std::nullopt;
}

/// Where sound goes on behind bytes that are no frame; npos where it does not: tags and zeros end many files.
size_t next_frame(std::string_view bytes, size_t at, const FrameHeader& like) {
  for (++at; at + 4 <= bytes.size(); ++at) {
    if (bytes[at] != '\xFF') continue;
    const auto header = header_at(bytes, at);
    if (!header || !header->alike(like) || header->bytes == 0) continue;
    const auto next = header_at(bytes, at + header->bytes);
    if (next && next->alike(like)) return at;
  }
  return std::string_view::npos;
}

}  // namespace

WholeMp3 whole_mp3(std::string_view bytes, const std::string& where) {
  const auto refuse = [&](const std::string& what) { refuse_cut_audio(AudioKind::kMp3, what, where); };
  const auto first = header_at(bytes, 0);
  if (!first || first->bytes == 0) return {.bytes = bytes, .samples = {}};  // free format: nothing to count by
  const auto stated = stated_frames(bytes.substr(0, first->bytes), *first);
  int64_t frames = stated ? -1 : 0;
  size_t at = 0;
  while (at < bytes.size()) {
    const auto header = header_at(bytes, at);
    if (!header || !header->alike(*first) || header->bytes == 0) {
      const bool tail = bytes.size() - at < 4 && bytes[at] == '\xFF';
      if (tail) refuse(fmt::format("the frame at byte {} of {} is not all there", at, bytes.size()));
      if (const size_t on = next_frame(bytes, at, *first); on != std::string_view::npos)
        refuse(fmt::format("bytes {} to {} are no frames", at, on));
      break;
    }
    if (header->bytes > bytes.size() - at)
      refuse(fmt::format("the frame at byte {} takes {} bytes, {} are there", at, header->bytes, bytes.size() - at));
    at += header->bytes;
    ++frames;
  }
  // Some programs count the frame that says it.
  if (stated && *stated >= 0 && std::abs(*stated - frames) > 1)
    refuse(fmt::format("its header states {} frames, {} are there", *stated, frames));
  bytes = bytes.substr(0, at);
  if (stated == frames && !is_vbri(bytes)) return {.bytes = bytes, .samples = {}};
  if (stated) bytes.remove_prefix(first->bytes);  // a decoder would stop after as many, whatever follows
  return {.bytes = bytes, .samples = frames * first->samples()};
}

}  // namespace lockstep
