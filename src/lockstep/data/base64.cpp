#include "lockstep/data/base64.h"

#include <algorithm>
#include <cctype>
#include <cstdint>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// 0..63, or -1.
int digit_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+' || c == '-') return 62;
  return c == '/' || c == '_' ? 63 : -1;
}

}  // namespace

std::string decode_base64(std::string_view text, const std::string& where) {
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  size_t digits = 0, padding = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int value = digit_value(c);
    if (value < 0 || padding > 0) {
      throw data_error(fmt::format("{}: expected base64, found byte 0x{:02x} at position {} of {}", where,
                                   static_cast<uint8_t>(c), i, text.size()));
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (++digits % 4 == 0) {
      for (const int shift : {16, 8, 0}) out += static_cast<char>(bits >> shift & 0xFF);
      bits = 0;
    }
  }
  const size_t rest = digits % 4;
  if (rest == 1 || padding > 2) {
    throw data_error(fmt::format("{}: expected base64, found {} digits and {} '='", where, digits, padding),
                     "is the text cut off?");
  }
  if (rest >= 2) out += static_cast<char>(bits >> (6 * rest - 8) & 0xFF);
  if (rest == 3) out += static_cast<char>(bits >> 2 & 0xFF);
  return out;
}

std::string decode_data_uri(std::string_view uri, const std::string& where) {
  const size_t comma = uri.find(',');
  if (comma == std::string_view::npos) {
    throw data_error(fmt::format("{}: expected \"data:...;base64,...\", found no comma", where));
  }
  std::string type(uri.substr(0, comma));
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (type != "data:" && !type.ends_with(";base64")) {
    throw data_error(fmt::format("{}: expected a data: URI with base64, found \"{}\"", where, type.substr(0, 64)));
  }
  return decode_base64(uri.substr(comma + 1), where);
}

std::string encode_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < count ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kAlphabet[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace lockstep
