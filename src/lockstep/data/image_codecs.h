// The decoders behind decode_image, one a format. Each gets bytes that begin with its format's signature, and gives RGB
// with the orientation that the file asks for, not yet applied.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/data/image.h"

namespace lockstep {

/// Pixels as stored, and the EXIF orientation 1..8 (1: upright).
struct DecodedImage {
  Image image;
  int orientation = 1;
};

/// All throw UserError(kData) with `where`, the format, and what was wrong.
DecodedImage decode_png(std::string_view bytes, const std::string& where);
DecodedImage decode_jpeg(std::string_view bytes, const std::string& where);
DecodedImage decode_webp(std::string_view bytes, const std::string& where);

/// Whether a file begins as a PNG, JPEG or WebP does: decode_image reads it.
bool is_picture(std::string_view bytes);
/// What a file is by its first bytes, where something else was expected: the usual mistakes by name, else the bytes. `size`: of
/// the file, where these are not all of it.
std::string describe_bytes(std::string_view bytes, std::optional<int64_t> size = {});

/// Refuses sizes that only a broken or hostile file has, before anything is allocated: more than 178,956,970 pixels
/// (Pillow's limit). Throws UserError(kData).
void check_image_size(int64_t width, int64_t height, const std::string& where);

/// The orientation in an EXIF block (TIFF header first; a leading "Exif\0\0" is allowed); 0 when it names none.
int exif_orientation(std::string_view block);
/// The orientation in an XMP packet; 0 when it names none.
int xmp_orientation(std::string_view packet);
/// The picture as it was meant to be seen. orientation: EXIF's 1..8; anything else leaves it alone.
Image apply_orientation(Image image, int orientation);

}  // namespace lockstep
