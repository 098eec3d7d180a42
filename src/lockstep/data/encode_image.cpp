#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <jpeglib.h>  // after <cstdio> and <cstddef>, whose types it uses
#include <png.h>

#include "lockstep/base/error.h"
#include "lockstep/data/image.h"

namespace lockstep {

namespace {

void check_pixels(const Image& image) {
  check(
      image.width > 0 && image.height > 0 && image.pixels.size() == static_cast<size_t>(image.width * image.height * 3),
      "encode: the image is empty, or its pixels do not fit its size");
}

}  // namespace

std::string encode_png(const Image& image) {
  check_pixels(image);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = PNG_FORMAT_RGB;
  std::string out(PNG_IMAGE_PNG_SIZE_MAX(header), '\0');
  png_alloc_size_t size = out.size();
  check(png_image_write_to_memory(&header, out.data(), &size, 0, image.pixels.data(), 0, nullptr) != 0, header.message);
  out.resize(size);
  return out;
}

std::string encode_jpeg(const Image& image, int quality) {
  check_pixels(image);
  check(image.width <= JPEG_MAX_DIMENSION && image.height <= JPEG_MAX_DIMENSION, "encode_jpeg: the image is too large");
  // Encoding from memory to memory can fail only for want of memory, and then libjpeg's handler ends the process as a
  // failed allocation anywhere else would; so no longjmp is needed here.
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &buffer, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    // The library does not write through this pointer; its type predates const.
    auto* row = const_cast<JSAMPROW>(&image.pixels[size_t{info.next_scanline} * static_cast<size_t>(image.width) * 3]);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const std::unique_ptr<unsigned char, decltype(&std::free)> owner(buffer, &std::free);
  return {reinterpret_cast<const char*>(buffer), size};
}

}  // namespace lockstep
