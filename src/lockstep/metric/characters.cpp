#include "lockstep/metric/characters.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <utf8proc.h>

namespace lockstep {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

char32_t lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }

bool is_space(char32_t c) {
  if (c == ' ' || (c >= '\t' && c <= '\r')) return true;
  const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

/// Letters, marks and digits.
bool is_word_character(char32_t c) {
  const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NO;
}

/// Blocks of scripts without blanks between words, by the Unicode character database.
bool stands_alone(char32_t c) {
  constexpr std::array<std::pair<char32_t, char32_t>, 10> kBlocks = {{{0x0E00, 0x0EFF},      // Thai, Lao
                                                                      {0x1000, 0x109F},      // Burmese
                                                                      {0x1780, 0x17FF},      // Khmer
                                                                      {0x2E80, 0x2FDF},      // radicals
                                                                      {0x3005, 0x3007},      // iteration mark, zero
                                                                      {0x3040, 0x30FF},      // hiragana, katakana
                                                                      {0x3400, 0x4DBF},      // Han, extension A
                                                                      {0x4E00, 0x9FFF},      // Han
                                                                      {0xF900, 0xFAFF},      // Han, compatibility
                                                                      {0x20000, 0x3FFFF}}};  // Han, the rest
  return std::any_of(kBlocks.begin(), kBlocks.end(),
                     [c](const auto& block) { return c >= block.first && c <= block.second; });
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = 0;
    const auto used = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    out.push_back(used > 0 ? static_cast<char32_t>(c) : kReplacement);
    at += used > 0 ? static_cast<size_t>(used) : 1;
  }
  return out;
}

std::u32string folded(std::string_view text) {
  std::u32string out;
  for (const char32_t c : code_points(text)) {
    if (!is_space(c)) {
      out.push_back(lower(c));
    } else if (!out.empty() && out.back() != U' ') {
      out.push_back(U' ');
    }
  }
  if (!out.empty() && out.back() == U' ') out.pop_back();
  return out;
}

std::vector<std::u32string> words_of(std::string_view text) {
  std::vector<std::u32string> words;
  bool open = false;  // the last word may grow
  for (const char32_t c : code_points(text)) {
    if (!is_word_character(c)) {
      open = false;
    } else if (stands_alone(c)) {
      words.emplace_back(1, c);
      open = false;
    } else {
      if (!open) words.emplace_back();
      words.back().push_back(lower(c));
      open = true;
    }
  }
  return words;
}

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin));
}

size_t edit_distance(std::u32string_view a, std::u32string_view b) {
  while (!a.empty() && !b.empty() && a.front() == b.front()) a.remove_prefix(1), b.remove_prefix(1);
  while (!a.empty() && !b.empty() && a.back() == b.back()) a.remove_suffix(1), b.remove_suffix(1);
  if (a.size() < b.size()) std::swap(a, b);
  std::vector<size_t> row(b.size() + 1);  // distances of a's prefix to each prefix of b
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace lockstep
