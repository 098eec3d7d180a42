#include "lockstep/text/utf8.h"

#include <algorithm>

namespace lockstep {
namespace {

struct Lead {
  size_t size;         // of the whole character, 0 for a byte that starts none
  unsigned low, high;  // allowed range of the second byte
};

Lead classify(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step utf8_step(std::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const Lead lead = classify(first);
  if (lead.size == 1) return {.code_point = first, .size = 1, .valid = true};
  if (lead.size == 0) return {};
  char32_t code_point = first & (0x7FU >> lead.size);
  for (size_t k = 1; k < lead.size; ++k) {
    if (at + k >= text.size()) return {.size = k, .truncated = true};
    const auto byte = static_cast<unsigned char>(text[at + k]);
    const unsigned low = k == 1 ? lead.low : 0x80;
    const unsigned high = k == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {.size = k};
    code_point = (code_point << 6) | (byte & 0x3FU);
  }
  return {.code_point = code_point, .size = lead.size, .valid = true};
}

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (step.valid) {
      out.append(text.substr(i, step.size));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    i += step.size;
  }
  return out;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Step step = utf8_step(text, i);
    if (!step.valid) return false;
    i += step.size;
  }
  return true;
}

size_t utf8_unfinished(std::string_view text) {
  // Only the last three bytes can start an unfinished character.
  for (size_t back = std::min<size_t>(3, text.size()); back > 0; --back) {
    const Utf8Step step = utf8_step(text, text.size() - back);
    if (step.truncated && step.size == back) return back;
  }
  return 0;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

size_t utf8_size(char first_byte) {
  const auto byte = static_cast<unsigned char>(first_byte);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

}  // namespace lockstep
