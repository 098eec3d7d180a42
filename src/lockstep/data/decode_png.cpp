#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <png.h>

#include "lockstep/base/error.h"
#include "lockstep/data/image_codecs.h"

namespace lockstep {

namespace {

/// libpng reports errors by longjmp, which skips destructors. So every call into it is in one of the four methods
/// below, which hold no local with a destructor; buffers belong to the caller.
class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : bytes_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, &PngReader::on_error, &PngReader::on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (png_ != nullptr) end_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, &end_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool read_header() {
    if (info_ == nullptr || end_ == nullptr || setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, &PngReader::on_read);
    // Sizes are judged by check_image_size; a checksum that fails in a chunk without pixels is no reason to lose a row.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_crc_action(png_, PNG_CRC_DEFAULT, PNG_CRC_WARN_DISCARD);
    png_set_chunk_cache_max(png_, 17);  // texts that are kept, of 8 MB at most once they are decompressed
    png_read_info(png_, info_);
    png_get_IHDR(png_, info_, &width, &height, &depth, &color_type, nullptr, nullptr, nullptr);
    return true;
  }

  /// After it each row is `3 * width` bytes, or `2 * width` for 16-bit grey, which is narrowed by the caller.
  bool choose_transforms() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    if (color_type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if (color_type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png_);
    if (!is_grey_16()) {
      png_set_strip_16(png_);
      png_set_gray_to_rgb(png_);
    }
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    row_bytes = png_get_rowbytes(png_, info_);
    return true;
  }

  bool read_rows(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    return true;
  }

  /// What stands behind the pixels.
  bool read_end() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_end(png_, end_);
    return true;
  }

  /// Of a chunk of text, compressed or not, the last of that name; empty: there is none.
  std::string_view text(std::string_view name) const {
    std::string_view found;
    for (const png_infop info : {info_, end_}) {
      png_textp texts = nullptr;
      const int count = png_get_text(png_, info, &texts, nullptr);
      for (int i = 0; i < count; ++i) {
        if (name == texts[i].key) found = {texts[i].text, std::max(texts[i].text_length, texts[i].itxt_length)};
      }
    }
    return found;
  }

  bool is_grey_16() const { return color_type == PNG_COLOR_TYPE_GRAY && depth == 16; }
  const char* error() const { return error_.data(); }

  png_uint_32 width = 0, height = 0;
  int depth = 0, color_type = 0;
  size_t row_bytes = 0;

 private:
  static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->error_.data(), self->error_.size(), "%s", message);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, size_t length) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (self->bytes_.size() - self->position_ < length) png_error(png, "the file ends too early");
    std::memcpy(to, self->bytes_.data() + self->position_, length);
    self->position_ += length;
  }

  std::string_view bytes_;
  size_t position_ = 0;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr, end_ = nullptr;
  std::array<char, 160> error_{};
};

uint32_t big_endian_32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

/// As ImageMagick keeps a block: a line of its own, its name, its length, then hex digits in lines.
std::string raw_profile(std::string_view text) {
  for (int line = 0; line < 3; ++line) text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
  std::string block;
  int high = -1;
  for (const char c : text) {
    const size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
    if (c == '\n' || digit == std::string_view::npos) continue;
    if (high >= 0) block += static_cast<char>(high << 4 | static_cast<int>(digit));
    high = high >= 0 ? -1 : static_cast<int>(digit);
  }
  return block;
}

/// In Pillow's order; each may stand before or behind the pixels.
int png_orientation(std::string_view bytes, const PngReader& reader) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = big_endian_32(bytes, at);
    const std::string_view kind = bytes.substr(at + 4, 4);
    if (bytes.size() - at - 12 < length) break;
    const std::string_view body = bytes.substr(at + 8, length);
    if (kind == "eXIf") {
      if (const int found = exif_orientation(body); found != 0) return found;
    }
    at += 12 + length;
  }
  const int profile = exif_orientation(raw_profile(reader.text("Raw profile type exif")));
  const int found = profile != 0 ? profile : xmp_orientation(reader.text("XML:com.adobe.xmp"));
  return found == 0 ? 1 : found;
}

/// Grey values above 255 become 255, as Pillow's convert("RGB") makes of a 16-bit grey picture.
void narrow_grey_16(const std::vector<uint8_t>& wide, std::vector<uint8_t>& rgb) {
  for (size_t i = 0; i < rgb.size() / 3; ++i) {
    const uint8_t value = wide[2 * i] != 0 ? uint8_t{255} : wide[2 * i + 1];
    std::memset(&rgb[3 * i], value, 3);
  }
}

}  // namespace

DecodedImage decode_png(std::string_view bytes, const std::string& where) {
  PngReader reader(bytes);
  const auto fail = [&] {
    const std::string size = reader.width == 0 ? "" : fmt::format(" {}x{}", reader.width, reader.height);
    return data_error(
        fmt::format("{}: PNG{} cannot be decoded: {} ({} bytes)", where, size, reader.error(), bytes.size()),
        "is the file complete? compare its size with the source");
  };
  if (!reader.read_header()) throw fail();
  check_image_size(reader.width, reader.height, where);
  if (!reader.choose_transforms()) throw fail();

  Image image{.width = reader.width, .height = reader.height, .pixels = {}};
  const size_t num_pixels = size_t{reader.width} * reader.height;
  image.pixels.resize(num_pixels * 3);
  std::vector<uint8_t> wide(reader.is_grey_16() ? num_pixels * 2 : 0);
  check(reader.row_bytes == size_t{reader.width} * (reader.is_grey_16() ? 2 : 3), "decode_png: unexpected row size");
  std::vector<png_bytep> rows(reader.height);
  uint8_t* base = reader.is_grey_16() ? wide.data() : image.pixels.data();
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = base + y * reader.row_bytes;
  if (!reader.read_rows(rows.data())) throw fail();
  if (reader.is_grey_16()) narrow_grey_16(wide, image.pixels);
  (void)reader.read_end();  // all pixels are there
  return {.image = std::move(image), .orientation = png_orientation(bytes, reader)};
}

}  // namespace lockstep
