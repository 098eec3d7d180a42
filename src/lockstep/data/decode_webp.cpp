#include <utility>

#include <fmt/format.h>
#include <webp/decode.h>

#include "lockstep/base/error.h"
#include "lockstep/data/image_codecs.h"

namespace lockstep {

namespace {

const char* status_name(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "out of memory";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "it uses a feature that libwebp lacks";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the file ends too early";
    default:
      return "the data is corrupt";
  }
}

uint32_t little_endian_32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

int webp_orientation(std::string_view bytes) {
  int from_xmp = 0;
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const size_t length = little_endian_32(bytes, at + 4);
    const std::string_view kind = bytes.substr(at, 4);
    const std::string_view body = bytes.substr(at + 8, length);  // clipped at the end
    if (kind == "EXIF") {
      if (const int found = exif_orientation(body); found != 0) return found;
    } else if (kind == "XMP ") {
      from_xmp = xmp_orientation(body);
    }
    at += 8 + length + length % 2;
  }
  return from_xmp == 0 ? 1 : from_xmp;
}

}  // namespace

DecodedImage decode_webp(std::string_view bytes, const std::string& where) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  WebPBitstreamFeatures features{};
  const auto fail = [&](const char* why, const char* hint) {
    const std::string size = features.width == 0 ? "" : fmt::format(" {}x{}", features.width, features.height);
    return data_error(fmt::format("{}: WebP{} cannot be decoded: {} ({} bytes)", where, size, why, bytes.size()), hint);
  };
  constexpr const char* kIncomplete = "is the file complete? compare its size with the source";
  if (const auto status = WebPGetFeatures(data, bytes.size(), &features); status != VP8_STATUS_OK) {
    throw fail(status_name(status), kIncomplete);
  }
  if (features.has_animation != 0) throw fail("it is an animation", "store one frame as PNG, JPEG or still WebP");
  check_image_size(features.width, features.height, where);

  Image image{.width = features.width, .height = features.height, .pixels = {}};
  image.pixels.resize(static_cast<size_t>(image.width * image.height * 3));
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0)
    throw fail("libwebp has another version", "rebuild against the system's libwebp");
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = image.pixels.data(), .stride = features.width * 3, .size = image.pixels.size()};
  const auto status = WebPDecode(data, bytes.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) throw fail(status_name(status), kIncomplete);
  return {.image = std::move(image), .orientation = webp_orientation(bytes)};
}

}  // namespace lockstep
