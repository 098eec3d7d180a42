#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <jerror.h>
#include <jpeglib.h>  // after <cstdio> and <cstddef>, whose types it uses

#include "lockstep/base/error.h"
#include "lockstep/data/image_codecs.h"

namespace lockstep {

namespace {

constexpr int kMaxScans = 500;  // a hostile progressive file can ask for millions, each over the whole picture
constexpr std::array<JOCTET, 2> kEndOfImage = {0xFF, 0xD9};

/// libjpeg reports errors by longjmp, which skips destructors. So every call into it is in one of the methods below,
/// which hold no local with a destructor; buffers belong to the caller.
class JpegReader {
 public:
  explicit JpegReader(std::string_view bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = &JpegReader::on_error;
    errors_.emit_message = &JpegReader::on_message;
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.fill_input_buffer = &JpegReader::on_end;
    source_.skip_input_data = &JpegReader::on_skip;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    progress_.progress_monitor = &JpegReader::on_progress;
  }
  ~JpegReader() {
    if (created_) jpeg_destroy_decompress(&info_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header() {
    if (setjmp(escape_) != 0) return false;
    jpeg_create_decompress(&info_);
    created_ = true;
    info_.client_data = this;
    info_.src = &source_;
    info_.progress = &progress_;
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  bool start() {
    if (setjmp(escape_) != 0) return false;
    // Four components are kept as CMYK (YCCK is turned into it); grey stays grey: the caller makes RGB of both.
    info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : info_.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    multiple_scans_ = jpeg_has_multiple_scans(&info_) != FALSE;
    jpeg_start_decompress(&info_);
    return true;
  }

  bool read_row(JSAMPROW row) {
    if (setjmp(escape_) != 0) return false;
    jpeg_read_scanlines(&info_, &row, 1);
    return true;
  }

  /// A file may lack its last marker, but not pixels: those are missed when data ended inside a scan, and always where
  /// a picture has several scans, since a missing one only blurs or discolours it.
  bool is_truncated() const { return reached_end_ && (missed_data_ || multiple_scans_); }

  int orientation() const {
    int from_xmp = 0;
    for (auto* marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view body(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (body.starts_with("Exif")) {
        if (const int found = exif_orientation(body); found != 0) return found;
      } else if (body.starts_with("http://ns.adobe.com/xap/1.0/")) {
        from_xmp = xmp_orientation(body);
      }
    }
    return from_xmp == 0 ? 1 : from_xmp;
  }

  int64_t width() const { return info_.image_width; }
  int64_t height() const { return info_.image_height; }
  int channels() const { return info_.output_components; }
  const char* error() const { return error_.data(); }

 private:
  static JpegReader& self(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }
  static void on_error(j_common_ptr info) {
    JpegReader& reader = self(info);
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    std::snprintf(reader.error_.data(), reader.error_.size(), "%s", text);
    std::longjmp(reader.escape_, 1);
  }
  static void on_message(j_common_ptr info, int level) {
    if (level < 0 && info->err->msg_code == JWRN_HIT_MARKER) self(info).missed_data_ = true;
  }
  static boolean on_end(j_decompress_ptr info) {
    self(reinterpret_cast<j_common_ptr>(info)).reached_end_ = true;
    info->src->next_input_byte = kEndOfImage.data();
    info->src->bytes_in_buffer = kEndOfImage.size();
    return TRUE;
  }
  static void on_skip(j_decompress_ptr info, long count) {
    const size_t step = std::min(info->src->bytes_in_buffer, static_cast<size_t>(std::max(count, 0L)));
    info->src->next_input_byte += step;
    info->src->bytes_in_buffer -= step;
  }
  static void on_progress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
    JpegReader& reader = self(info);
    std::snprintf(reader.error_.data(), reader.error_.size(), "more than %d scans", kMaxScans);
    std::longjmp(reader.escape_, 1);
  }

  std::string_view bytes_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf escape_{};
  std::array<char, JMSG_LENGTH_MAX> error_{};
  bool created_ = false, multiple_scans_ = false, reached_end_ = false, missed_data_ = false;
};

/// a * b / 255, rounded, exact for 8-bit values.
uint8_t multiply_255(uint32_t a, uint32_t b) {
  const uint32_t t = a * b + 128;
  return static_cast<uint8_t>(((t >> 8) + t) >> 8);
}

/// Files store inverted ink (Adobe's habit, which Pillow assumes of all): value 255 is no ink. Source: Pillow's
/// CMYK to RGB, light = 255 - black, channel = light - ink * light.
void row_to_rgb(const uint8_t* from, int channels, int64_t width, uint8_t* to) {
  for (int64_t x = 0; x < width; ++x, from += channels, to += 3) {
    if (channels == 1) {
      to[0] = to[1] = to[2] = from[0];
      continue;
    }
    const uint8_t light = from[3];
    for (int c = 0; c < 3; ++c) to[c] = static_cast<uint8_t>(light - multiply_255(255U - from[c], light));
  }
}

}  // namespace

DecodedImage decode_jpeg(std::string_view bytes, const std::string& where) {
  JpegReader reader(bytes);
  const auto fail = [&](const char* why) {
    const std::string size = reader.width() == 0 ? "" : fmt::format(" {}x{}", reader.width(), reader.height());
    return data_error(fmt::format("{}: JPEG{} cannot be decoded: {} ({} bytes)", where, size, why, bytes.size()),
                      "is the file complete? compare its size with the source");
  };
  if (!reader.read_header()) throw fail(reader.error());
  check_image_size(reader.width(), reader.height(), where);
  if (!reader.start()) throw fail(reader.error());

  Image image{.width = reader.width(), .height = reader.height(), .pixels = {}};
  const auto stride = static_cast<size_t>(image.width * 3);
  image.pixels.resize(stride * static_cast<size_t>(image.height));
  std::vector<uint8_t> row(static_cast<size_t>(image.width * reader.channels()));
  for (int64_t y = 0; y < image.height; ++y) {
    uint8_t* to = image.pixels.data() + static_cast<size_t>(y) * stride;
    const bool direct = reader.channels() == 3;
    if (!reader.read_row(direct ? to : row.data())) throw fail(reader.error());
    if (reader.is_truncated()) throw fail(fmt::format("the file ends before row {} is complete", y).c_str());
    if (!direct) row_to_rgb(row.data(), reader.channels(), image.width, to);
  }
  return {.image = std::move(image), .orientation = reader.orientation()};
}

}  // namespace lockstep
