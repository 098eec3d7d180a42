#include "lockstep/base/python_literal.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/utf8.h"

namespace lockstep {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }
bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

void put_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[more] | (code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F));
}

class Reader {
 public:
  Reader(std::string_view text, const JsonLimits& limits) : text_(text), budget_(limits) {}

  bool read(Json& out, JsonFault& fault) {
    out = nullptr;
    bool fine = value(out);
    if (fine) {
      skip_space();
      if (at_ != text_.size()) fine = fail("expected the end behind the value");
    }
    if (!fine) {
      out = nullptr;
      fault = {.byte = at_, .why = why_, .kind = kind_};
    }
    return fine;
  }

 private:
  bool fail(std::string why, JsonFault::Kind kind = JsonFault::Kind::kSyntax) {
    why_ = std::move(why);
    kind_ = kind;
    return false;
  }
  bool spend(size_t bytes) { return budget_.spend(bytes) || fail(budget_.why(), JsonFault::Kind::kLimit); }
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char c) {
    skip_space();
    if (here() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  bool value(Json& out) {
    skip_space();
    if (!spend(sizeof(Json))) return false;
    const char c = here();
    if (c == '[') return items(out, ']');
    if (c == '(') return items(out, ')');
    if (c == '{') return pairs(out);
    if (c == '\'' || c == '"') return texts(out);
    if (is_digit(c) || c == '-' || c == '+' || c == '.') return number(out);
    if (is_word(c)) return word(out);
    return fail("expected a list, a dict, a text, a number, True, False or None");
  }

  bool items(Json& out, char end) {
    if (!budget_.enter()) return fail(budget_.why(), JsonFault::Kind::kLimit);
    ++at_;
    out = Json::array();
    while (!take(end)) {
      Json item;
      if (!value(item)) return false;
      out.push_back(std::move(item));
      if (take(',')) continue;
      if (!take(end)) return fail(fmt::format("expected ',' or '{}'", end));
      budget_.leave();
      // One value in brackets without a comma is that value.
      if (end == ')' && out.size() == 1) out = Json(std::move(out[0]));
      return true;
    }
    budget_.leave();
    return true;
  }

  bool pairs(Json& out) {
    if (!budget_.enter()) return fail(budget_.why(), JsonFault::Kind::kLimit);
    ++at_;
    out = Json::object();
    auto& items = out.get_ref<Json::object_t&>();
    std::unordered_map<std::string, std::ptrdiff_t> places;  // an object looks through all that it has
    while (!take('}')) {
      Json key, item;
      if (!value(key)) return false;
      if (key.is_structured()) return fail("expected a text as key");
      if (!take(':')) return fail("expected ':'");
      if (!value(item)) return false;
      std::string name = key.is_string() ? key.get<std::string>() : key.dump();
      const auto [place, is_new] = places.emplace(name, std::ssize(items));
      if (is_new) {
        items.emplace_back(std::move(name), std::move(item));
      } else {
        (items.begin() + place->second)->second = std::move(item);
      }
      if (take(',')) continue;
      if (!take('}')) return fail("expected ',' or '}'");
      break;
    }
    budget_.leave();
    return true;
  }

  /// Texts beside one another are one.
  bool texts(Json& out) {
    std::string all;
    do {
      if (!text(all)) return false;
      skip_space();
    } while (here() == '\'' || here() == '"');
    out = std::move(all);
    return true;
  }

  bool text(std::string& out) {
    const char quote = text_[at_];
    const std::string thrice(3, quote);
    const bool longer = text_.substr(at_).starts_with(thrice);
    at_ += longer ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (longer ? text_.substr(at_).starts_with(thrice) : c == quote) {
        at_ += longer ? 3 : 1;
        return true;
      }
      if (!spend(1)) return false;
      if (c == '\n' && !longer) return fail("a text that ends with its line");
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return false;
      }
    }
    return fail("expected the end of a text");
  }

  /// At the backslash; ends on the last character of it.
  bool escape(std::string& out) {
    if (++at_ >= text_.size()) return fail("expected the end of a text");
    constexpr std::string_view kNames = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at_];
    if (const size_t found = kNames.find(c); found != std::string_view::npos) {
      out += kValues[found];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return code_point(out, c == 'x' ? 2 : c == 'u' ? 4 : 8);
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      size_t count = 0;
      for (; count < 3 && at_ < text_.size() && here() >= '0' && here() <= '7'; ++count)
        code = code * 8 + static_cast<uint32_t>(text_[at_++] - '0');
      --at_;
      put_utf8(out, code);
    } else if (c != '\n') {
      (out += '\\') += c;
    }
    return true;
  }

  std::optional<uint32_t> hexadecimal(size_t from, size_t digits) const {
    uint32_t code = 0;
    if (from + digits > text_.size()) return std::nullopt;
    const char* end = text_.data() + from + digits;
    const auto [rest, error] = std::from_chars(text_.data() + from, end, code, 16);
    return error == std::errc() && rest == end ? std::optional(code) : std::nullopt;
  }

  bool code_point(std::string& out, size_t digits) {
    auto code = hexadecimal(at_ + 1, digits);
    if (!code || *code > 0x10FFFF) return fail(fmt::format("expected {} hexadecimal digits of a character", digits));
    at_ += digits;
    const bool pair = *code >= 0xD800 && *code < 0xDC00 && text_.substr(at_ + 1).starts_with("\\u");
    if (pair) {  // as JSON writes what lies beyond 16 bits
      const auto low = hexadecimal(at_ + 3, 4);
      if (low && *low >= 0xDC00 && *low < 0xE000) {
        code = 0x10000 + ((*code - 0xD800) << 10) + (*low - 0xDC00);
        at_ += 6;
      }
    }
    put_utf8(out, *code >= 0xD800 && *code < 0xE000 ? 0xFFFD : *code);
    return true;
  }

  bool number(Json& out) {
    const size_t begin = at_;
    if (here() == '-' || here() == '+') ++at_;
    while (at_ < text_.size() &&
           (is_word(here()) || here() == '.' || ((here() == '-' || here() == '+') && (text_[at_ - 1] | 0x20) == 'e')))
      ++at_;
    std::string digits(text_.substr(begin, at_ - begin));
    std::erase(digits, '_');
    if (digits.starts_with('+')) digits.erase(0, 1);
    int64_t whole = 0;
    double real = 0;
    const char* end = digits.data() + digits.size();
    if (const auto [rest, error] = std::from_chars(digits.data(), end, whole); error == std::errc() && rest == end) {
      out = whole;
    } else if (const auto [last, fault] = std::from_chars(digits.data(), end, real);
               fault == std::errc() && last == end && std::isfinite(real)) {
      out = real;
    } else {
      at_ = begin;
      return fail("expected a number");
    }
    return true;
  }

  bool word(Json& out) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name == "True") {
      out = true;
    } else if (name == "False") {
      out = false;
    } else if (name == "None") {
      out = nullptr;
    } else {
      at_ = begin;
      return fail("expected True, False or None");
    }
    return true;
  }

  std::string_view text_;
  JsonBudget budget_;
  size_t at_ = 0;
  std::string why_;
  JsonFault::Kind kind_ = JsonFault::Kind::kSyntax;
};

}  // namespace

bool try_parse_python(std::string_view text, Json& out, JsonFault& fault, const JsonLimits& limits) {
  if (!is_utf8(text)) {
    fault = {.byte = 0, .why = "expected UTF-8, found bytes that are none", .kind = JsonFault::Kind::kSyntax};
    return false;
  }
  return Reader(text, limits).read(out, fault);
}

bool try_parse_literal(std::string_view text, Json& out, JsonFault& fault, const JsonLimits& limits) {
  if (try_parse_json(text, out, fault, limits)) return true;
  JsonFault other;
  if (try_parse_python(text, out, other, limits)) return true;
  if (other.byte > fault.byte) fault = std::move(other);
  return false;
}

}  // namespace lockstep
