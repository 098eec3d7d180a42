#include "lockstep/text/white_space.h"

#include <string>

#include <utf8proc.h>

#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

// The last character of valid text.
char32_t last_character(std::string_view text, size_t& size) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  size = text.size() - at;
  return utf8_step(text, at).code_point;
}

utf8proc_category_t category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_punctuation(char32_t c) {
  if (c < 0x80)
    return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_number(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t c) {
  const auto kind = category(c);
  const bool letter = kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
  const bool mark = kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
  const bool circled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                       (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);  // alphabetic symbols
  return letter || mark || circled || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
         kind == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D;
}

size_t white_space_at_start(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!is_white_space(step.code_point)) break;
    at += step.size;
  }
  return at;
}

size_t white_space_at_end(std::string_view text) {
  const size_t whole = text.size();
  size_t size = 0;
  while (!text.empty() && is_white_space(last_character(text, size))) text.remove_suffix(size);
  return whole - text.size();
}

bool starts_with_word(std::string_view text) { return !text.empty() && is_word(utf8_step(text, 0).code_point); }

bool ends_with_word(std::string_view text) {
  size_t size = 0;
  return !text.empty() && is_word(last_character(text, size));
}

}  // namespace lockstep
