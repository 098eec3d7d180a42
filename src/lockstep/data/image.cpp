#include "lockstep/data/image.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/image_codecs.h"
#include "lockstep/data/media_bytes.h"

namespace lockstep {

namespace {

constexpr std::string_view kPngSignature("\x89PNG\r\n\x1a\n", 8);

bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"); }
bool is_webp(std::string_view bytes) {
  return bytes.size() >= 12 && bytes.starts_with("RIFF") && bytes.substr(8, 4) == "WEBP";
}

}  // namespace

bool is_picture(std::string_view bytes) { return bytes.starts_with(kPngSignature) || is_jpeg(bytes) || is_webp(bytes); }

std::string describe_bytes(std::string_view bytes, std::optional<int64_t> size) {
  if (bytes.empty()) return "an empty file";
  struct Known {
    std::string_view begin;
    const char* name;
  };
  static constexpr std::array<Known, 12> kKnown{{{"GIF8", "a GIF"},
                                                 {"BM", "a BMP"},
                                                 {"II*", "a TIFF"},
                                                 {"MM", "a TIFF"},
                                                 {"%PDF", "a PDF"},
                                                 {"version https://git-lfs", "a Git LFS pointer, not the file itself"},
                                                 {"<svg", "an SVG"},
                                                 {"<?xml", "XML"},
                                                 {"<!DOCTYPE", "an HTML page (a download that failed?)"},
                                                 {"<html", "an HTML page (a download that failed?)"},
                                                 {"\xFF\x0A", "a JPEG XL"},
                                                 {"{", "JSON"}}};
  if (bytes.starts_with(kPngSignature)) return "a PNG picture";
  if (is_jpeg(bytes)) return "a JPEG picture";
  if (is_webp(bytes)) return "a WebP picture";
  for (const auto& known : kKnown) {
    if (bytes.starts_with(known.begin)) return known.name;
  }
  if (bytes.size() >= 12 && bytes.substr(4, 4) == "ftyp")
    return fmt::format("an HEIC/AVIF/MP4 ({})", bytes.substr(8, 4));
  std::string hex;
  for (const char c : bytes.substr(0, 8))
    hex += fmt::format("{}{:02x}", hex.empty() ? "" : " ", static_cast<uint8_t>(c));
  return fmt::format("{} bytes that begin with {}", size.value_or(static_cast<int64_t>(bytes.size())), hex);
}

void check_image_size(int64_t width, int64_t height, const std::string& where) {
  if (width > 0 && height > 0 && width <= kMaxImagePixels / height) return;
  throw data_error(
      fmt::format("{}: expected an image of at most {} pixels, found {}x{}", where, kMaxImagePixels, width, height),
      "scale it down before training; a small file that claims such a size may be hostile");
}

Image decode_image(std::string_view bytes, const std::string& where, bool upright) {
  DecodedImage decoded;
  if (bytes.starts_with(kPngSignature)) {
    decoded = decode_png(bytes, where);
  } else if (is_jpeg(bytes)) {
    decoded = decode_jpeg(bytes, where);
  } else if (is_webp(bytes)) {
    decoded = decode_webp(bytes, where);
  } else {
    throw data_error(fmt::format("{}: expected a PNG, JPEG or WebP image, found {}", where, describe_bytes(bytes)));
  }
  return upright ? apply_orientation(std::move(decoded.image), decoded.orientation) : std::move(decoded.image);
}

Image load_image(const std::string& reference, const std::string& where, bool upright) {
  const MediaBytes media = media_bytes(reference, "image", where, kMaxTextFile);
  return decode_image(media.bytes, media.name, upright);
}

}  // namespace lockstep
