// Pictures that tests/fixtures/images/record.py draws too, and the hashes in which it records what is made of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lockstep/data/image.h"

namespace lockstep {

/// FNV-1a, 64 bits.
inline std::string fnv(const void* data, size_t size) {
  uint64_t hash = 0xCBF29CE484222325;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}
inline std::string fnv(const Image& image) { return fnv(image.pixels.data(), image.pixels.size()); }
inline std::string fnv(const std::vector<float>& values) { return fnv(values.data(), values.size() * sizeof(float)); }

/// kind: "noise", "gradients", or "edges" (strokes as of text).
inline Image drawn_image(std::string_view kind, int64_t width, int64_t height, uint32_t seed) {
  const auto noise = [seed](uint32_t x, uint32_t y, uint32_t c) {
    uint32_t hash = x * 73856093U ^ y * 19349663U ^ c * 83492791U ^ seed;
    hash = (hash ^ hash >> 13U) * 0x5BD1E995U;
    return hash ^ hash >> 15U;
  };
  const auto level = [&](uint32_t x, uint32_t y, uint32_t c) -> uint32_t {
    if (kind == "noise") return noise(x, y, c) & 255U;
    if (kind == "edges") return noise(x / 2, y / 3, 0) % 5 < 2 ? 0 : 255;
    const uint32_t wave = (x * (c + 1) + y * (4 - c) + (noise(x, y, c) & 7U)) % 510;
    return wave < 256 ? wave : 510 - wave;
  };
  Image image{.width = width, .height = height, .pixels = {}};
  image.pixels.reserve(static_cast<size_t>(width * height * 3));
  for (uint32_t y = 0; y < static_cast<uint32_t>(height); ++y) {
    for (uint32_t x = 0; x < static_cast<uint32_t>(width); ++x) {
      for (uint32_t c = 0; c < 3; ++c) image.pixels.push_back(static_cast<uint8_t>(level(x, y, c)));
    }
  }
  return image;
}

}  // namespace lockstep
