// Decode, resize and crop as the Hugging Face image processors do, to the bit.
//
// Example:
//   Image image = decode_image(read_text(path), path);          // RGB, EXIF orientation applied
//   image = resize(image, 56, 56, Resample::kBicubic, ImageBackend::kTorchvision);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// 8-bit RGB, rows from the top, interleaved: pixels[(y * width + x) * 3 + c].
struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels;
};

enum class Resample {
  kNearest = 0,
  kLanczos = 1,
  kBilinear = 2,
  kBicubic = 3,
  kBox = 4,
  kHamming = 5
};  // Pillow's numbers

/// Whose arithmetic is followed, by transformers' words: its processors use torchvision's on uint8 tensors, unless a
/// folder asks for Pillow's. They differ in a level here and there, and in more where bright and dark pixels alternate.
enum class ImageBackend { kTorchvision, kPillow };

/// What Pillow holds to be an attack: no picture may have more, as a file or resized.
constexpr int64_t kMaxImagePixels = 178'956'970;

/// PNG, JPEG, WebP by content, not by name. Grey, palette and 16-bit become RGB, alpha is dropped as Pillow's
/// convert("RGB") does, EXIF orientation is applied unless `upright` is false. Throws UserError(kData): `where`, what was found in
/// the first bytes.
Image decode_image(std::string_view bytes, const std::string& where, bool upright = true);

/// A path, or a data: URI with base64. Throws UserError(kData) naming both `reference` and `where` (the row).
Image load_image(const std::string& reference, const std::string& where, bool upright = true);

/// Bit-identical to Pillow's Image.resize of RGB, or to torchvision's resize of a uint8 tensor with antialias on a CPU
/// with AVX2; on any CPU. torchvision has no kLanczos, kBox, kHamming: they are Pillow's in both.
/// Its kNearest is followed as torch's source has it: compiled for AVX2, torch rounds a position exactly between two
/// pixels to either.
Image resize(const Image& image, int64_t width, int64_t height, Resample filter, ImageBackend backend);
/// Cut of the given size around the centre; parts outside are zero, as transformers' center_crop pads.
Image center_crop(const Image& image, int64_t width, int64_t height, ImageBackend backend);

std::string encode_png(const Image& image);
std::string encode_jpeg(const Image& image, int quality);

}  // namespace lockstep
