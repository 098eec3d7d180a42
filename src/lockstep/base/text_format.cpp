#include "lockstep/base/text_format.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {

std::string format_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // The limits are those of the rounded text: never "1024.00 KiB", "1000ms" or "1000.0K".
  while (std::abs(value) >= 1023.995 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 0.9995) return fmt::format("{}ms", std::lround(seconds * 1000));
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) return fmt::format("{}h {}m {}s", hours, minutes, rest);
  if (minutes > 0) return fmt::format("{}m {}s", minutes, rest);
  return fmt::format("{}s", rest);
}

std::string format_count(int64_t count) {
  if (count < 10'000) return std::to_string(count);
  if (count < 999'950) return fmt::format("{:.1f}K", static_cast<double>(count) / 1e3);
  if (count < 999'950'000) return fmt::format("{:.1f}M", static_cast<double>(count) / 1e6);
  return fmt::format("{:.2f}B", static_cast<double>(count) / 1e9);
}

std::string format_shape(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return out + "]";
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string cut_text(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  const auto is_inside = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80; };
  size_t head = most / 2, tail = text.size() - most / 4;
  while (head > 0 && is_inside(head)) --head;
  while (tail < text.size() && is_inside(tail)) ++tail;
  return fmt::format("{}… ({} bytes) …{}", text.substr(0, head), text.size(), text.substr(tail));
}

bool is_plain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

std::string plain_text(std::string_view bytes, size_t most) {
  std::string out;
  for (const char c : bytes.substr(0, most)) {
    out += is_plain({&c, 1}) ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return bytes.size() <= most ? out : fmt::format("{}… ({} bytes)", out, bytes.size());
}

std::string shown_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  int inside = 0;  // bytes that the character still has
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto spell = [&](unsigned char code) { out += fmt::format("\\x{:02x}", code); };
    const bool continues = (byte & 0xC0) == 0x80;
    if (continues && inside > 0) {
      --inside;
      out += text[i];
      continue;
    }
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0U;
    inside = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
    if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+009B begins what "\x1b[" does
      spell(static_cast<unsigned char>(next));
      inside = 0;
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F || continues) {
      spell(byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

bool starts_with_any(std::string_view text, std::span<const std::string> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const auto& prefix) { return text.starts_with(prefix); });
}

}  // namespace lockstep
