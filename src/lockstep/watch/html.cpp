#include "lockstep/watch/html.h"

#include <fstream>
#include <iterator>
#include <system_error>

#include <fmt/format.h>

namespace lockstep {

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
        if (control) {
          out += "\xEF\xBF\xBD";
        } else {
          out += c;
        }
      }
    }
  }
  return out;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) out += i + j <= bytes.size() ? kAlphabet[group >> (18 - 6 * j) & 63U] : '=';
  }
  return out;
}

std::string_view image_mime(std::string_view bytes) {
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return "image/png";
  if (bytes.starts_with("\xFF\xD8\xFF")) return "image/jpeg";
  if (bytes.starts_with("GIF8")) return "image/gif";
  if (bytes.starts_with("RIFF") && bytes.substr(0, 12).ends_with("WEBP")) return "image/webp";
  if (bytes.starts_with("BM")) return "image/bmp";
  return {};
}

std::string image_data_uri(const std::filesystem::path& path, int64_t max_bytes) {
  std::error_code failure;
  if (path.empty() || !std::filesystem::is_regular_file(path, failure)) return {};
  const auto size = std::filesystem::file_size(path, failure);
  if (failure || size > static_cast<uintmax_t>(max_bytes)) return {};
  std::ifstream in(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const auto mime = image_mime(bytes);
  return mime.empty() ? std::string() : fmt::format("data:{};base64,{}", mime, base64(bytes));
}

}  // namespace lockstep
