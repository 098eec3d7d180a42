#include <cctype>
#include <utility>

#include "lockstep/data/image_codecs.h"

namespace lockstep {

namespace {

constexpr uint32_t kOrientationTag = 0x0112;

/// Reads numbers of a TIFF block in its own byte order; past the end it reads zeros, so that a cut block names nothing.
class TiffReader {
 public:
  TiffReader(std::string_view block, bool big_endian) : block_(block), big_endian_(big_endian) {}

  uint32_t number(size_t offset, size_t width) const {
    uint32_t value = 0;
    if (offset > block_.size() || block_.size() - offset < width) return 0;
    for (size_t i = 0; i < width; ++i) {
      const size_t at = big_endian_ ? offset + i : offset + width - 1 - i;
      value = value << 8 | static_cast<uint8_t>(block_[at]);
    }
    return value;
  }

 private:
  std::string_view block_;
  bool big_endian_;
};

int valid_orientation(uint32_t value) { return value >= 1 && value <= 8 ? static_cast<int>(value) : 0; }

}  // namespace

int exif_orientation(std::string_view block) {
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  if (block.starts_with(kPrefix)) block.remove_prefix(kPrefix.size());
  if (!block.starts_with("II") && !block.starts_with("MM")) return 0;
  const TiffReader tiff(block, block.starts_with("MM"));
  const size_t directory = tiff.number(4, 4);
  const uint32_t entries = tiff.number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + size_t{12} * i;
    if (entry + 12 > block.size()) break;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    constexpr uint32_t kByte = 1, kLong = 4;
    const uint32_t type = tiff.number(entry + 2, 2);
    return valid_orientation(tiff.number(entry + 8, type == kByte ? 1 : type == kLong ? 4 : 2));
  }
  return 0;
}

int xmp_orientation(std::string_view packet) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (size_t at = packet.find(kName); at != std::string_view::npos; at = packet.find(kName, at + 1)) {
    std::string_view rest = packet.substr(at + kName.size());
    if (rest.starts_with("=\"")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with(">")) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    if (!rest.empty() && std::isdigit(static_cast<unsigned char>(rest[0])) != 0) {
      return valid_orientation(static_cast<uint32_t>(rest[0] - '0'));
    }
  }
  return 0;
}

Image apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool transposed = orientation >= 5;
  const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{.width = transposed ? image.height : image.width,
            .height = transposed ? image.width : image.height,
            .pixels = std::vector<uint8_t>(image.pixels.size())};
  uint8_t* to = out.pixels.data();
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x, to += 3) {
      // The source pixel: the axes swap back first, then each stored axis runs forwards or backwards.
      int64_t from_x = transposed ? y : x, from_y = transposed ? x : y;
      if (mirror_x) from_x = image.width - 1 - from_x;
      if (mirror_y) from_y = image.height - 1 - from_y;
      const uint8_t* from = &image.pixels[static_cast<size_t>((from_y * image.width + from_x) * 3)];
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return out;
}

}  // namespace lockstep
