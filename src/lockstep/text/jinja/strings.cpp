#include "lockstep/text/jinja/strings.h"

#include <algorithm>
#include <charconv>

#include <utf8proc.h>

#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/utf8.h"
#include "lockstep/text/white_space.h"

namespace lockstep::jinja {
namespace {

bool is_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool ends_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

size_t first_not(std::string_view text, bool (*skip)(char32_t)) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!skip(step.code_point)) break;
    at += step.size;
  }
  return at;
}

std::string_view last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return text.substr(at);
}

bool has(std::string_view set, std::string_view character) { return set.find(character) != std::string_view::npos; }

char32_t mapped(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t c) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(c)));
}

void append_upper(std::string& out, char32_t c) {
  if (c == 0xDF) {
    out += "SS";  // the one common letter whose capital is two
  } else {
    append_utf8(out, mapped(utf8proc_toupper, c));
  }
}

bool is_cased(char32_t c) { return mapped(utf8proc_toupper, c) != c || mapped(utf8proc_tolower, c) != c; }

std::vector<std::string> split_at_space(std::string_view text, int64_t limit) {
  std::vector<std::string> out;
  text = strip_left(text);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(out.size()) == limit) {
      out.emplace_back(strip_right(text));
      break;
    }
    const size_t end = first_not(text, [](char32_t c) { return !is_space(c); });
    out.emplace_back(text.substr(0, end));
    text = strip_left(text.substr(end));
  }
  return out;
}

}  // namespace

std::string_view strip_left(std::string_view text) { return text.substr(first_not(text, is_space)); }

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const std::string_view last = last_character(text);
    if (!is_space(utf8_step(last, 0).code_point)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view set) {
  spend_search(text, set);
  while (!text.empty() && has(set, text.substr(0, utf8_step(text, 0).size)))
    text.remove_prefix(utf8_step(text, 0).size);
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view set) {
  spend_search(text, set);
  while (!text.empty() && has(set, last_character(text))) text.remove_suffix(last_character(text).size());
  return text;
}

std::string upper(std::string_view text) {
  std::string out;
  for (const std::string_view c : characters(text)) append_upper(out, utf8_step(c, 0).code_point);
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  for (const std::string_view c : characters(text))
    append_utf8(out, mapped(utf8proc_tolower, utf8_step(c, 0).code_point));
  return out;
}

std::string capitalize(std::string_view text) {
  if (text.empty()) return {};
  const Utf8Step first = utf8_step(text, 0);
  std::string out;
  append_utf8(out, mapped(utf8proc_totitle, first.code_point));
  return out + lower(text.substr(first.size));
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (const std::string_view character : characters(text)) {
    const char32_t c = utf8_step(character, 0).code_point;
    append_utf8(out, mapped(in_word ? utf8proc_tolower : utf8proc_totitle, c));
    in_word = is_cased(c);
  }
  return out;
}

std::vector<std::string> split(std::string_view text, std::string_view separator, int64_t limit) {
  spend_search(text, separator);
  if (separator.empty()) return split_at_space(text, limit);
  std::vector<std::string> out;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = text.find(separator);
    if (at == std::string_view::npos) break;
    out.emplace_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  out.emplace_back(text);
  return out;
}

std::vector<std::string> split_from_right(std::string_view text, std::string_view separator, int64_t limit) {
  if (limit < 0) return split(text, separator);
  spend_search(text, separator);
  std::vector<std::string> out;
  if (separator.empty()) text = strip_right(text);
  while (!text.empty() && static_cast<int64_t>(out.size()) < limit) {
    if (separator.empty()) {
      std::string_view head = text;
      while (!head.empty() && !is_space(utf8_step(last_character(head), 0).code_point))
        head.remove_suffix(last_character(head).size());
      if (head.empty()) break;
      out.emplace_back(text.substr(head.size()));
      text = strip_right(head);
    } else {
      const size_t at = text.rfind(separator);
      if (at == std::string_view::npos) break;
      out.emplace_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    }
  }
  if (!separator.empty() || !strip_left(text).empty()) out.emplace_back(separator.empty() ? strip_left(text) : text);
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t end = first_not(text, [](char32_t c) { return !ends_line(c); });
    out.emplace_back(text.substr(0, end));
    if (end == text.size()) break;
    text.remove_prefix(text.substr(end).starts_with("\r\n") ? end + 2 : end + utf8_step(text, end).size);
  }
  return out;
}

std::string replace(std::string_view text, std::string_view old, std::string_view fresh, int64_t limit) {
  std::string out;
  if (old.empty()) {  // before every character and at the end
    for (const std::string_view c : characters(text)) {
      spend_bytes(fresh.size());
      if (limit != 0) out += fresh;
      if (limit > 0) --limit;
      out += c;
    }
    return limit == 0 ? out : out += fresh;
  }
  spend_search(text, old);
  for (; limit != 0; --limit) {
    const size_t at = text.find(old);
    if (at == std::string_view::npos) break;
    spend_bytes(fresh.size());
    out.append(text.substr(0, at)).append(fresh);
    text.remove_prefix(at + old.size());
  }
  return out.append(text);
}

std::vector<std::string_view> characters(std::string_view text) {
  spend_bytes(text.size() * sizeof(std::string_view));
  spend_steps(text.size() / 16);
  std::vector<std::string_view> out;
  for (size_t i = 0; i < text.size(); i += out.back().size()) out.push_back(text.substr(i, utf8_step(text, i).size));
  return out;
}

std::string unescape(std::string_view literal) {
  static constexpr std::string_view kLetters = "abfnrtv'\"\\", kMeaning = "\a\b\f\n\r\t\v'\"\\";
  std::string out;
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char letter = literal[++i];
    const size_t known = kLetters.find(letter);
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    uint32_t code = 0;
    const char* start = literal.data() + i;
    if (known != std::string_view::npos) {
      out += kMeaning[known];
    } else if (letter >= '0' && letter <= '7') {
      const char* end = std::from_chars(start, start + std::min<size_t>(3, literal.size() - i), code, 8).ptr;
      append_utf8(out, code);
      i += static_cast<size_t>(end - start) - 1;
    } else if (digits > 0 && i + digits < literal.size() &&
               std::from_chars(start + 1, start + 1 + digits, code, 16).ptr == start + 1 + digits) {
      append_utf8(out, code);
      i += digits;
    } else if (letter != '\n') {
      out += {'\\', letter};
    }
  }
  return out;
}

std::optional<int64_t> parse_int(std::string_view text, int base) {
  std::string digits(strip_left(strip_right(text)));
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (base == 16 && (digits.starts_with("0x") || digits.starts_with("0X"))) digits.erase(0, 2);
  if (digits.empty() || digits.front() == '_' || digits.back() == '_' || digits.find("__") != std::string::npos)
    return {};
  std::erase(digits, '_');
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return {};
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  std::string_view digits = strip_left(strip_right(text));
  if (digits.starts_with('+')) digits.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return {};
  return value;
}

}  // namespace lockstep::jinja
