#include "lockstep/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/strings.h"
#include "lockstep/text/utf8.h"
#include "lockstep/text/white_space.h"

namespace lockstep::jinja {
namespace {

// "\r\n" and "\r" become "\n", and one newline at the end goes.
std::string normal_newlines(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Longest first.
constexpr std::array<std::string_view, 26> kOperators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& where) : source_(normal_newlines(source)), where_(where) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      text_before(tag);
      if (tag == std::string::npos) break;
      at_ = tag;
      const char kind = source_[tag + 1];
      if (kind == '#') {
        comment();
      } else if (kind == '%' && raw_block()) {
        continue;
      } else {
        code(kind == '%');
      }
    }
    push(Token::Kind::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  using Kind = Token::Kind;

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }

  size_t find_tag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1)) {
      if (i + 1 < source_.size() && std::string_view("%{#").find(source_[i + 1]) != std::string_view::npos) return i;
    }
    return std::string::npos;
  }

  // Counts on from the token before, so that all places together are one walk.
  Place place(size_t at) const {
    if (at < counted_) counted_ = line_start_ = 0, line_ = 1;
    for (; counted_ < at; ++counted_) {
      if (source_[counted_] != '\n') continue;
      ++line_;
      line_start_ = counted_ + 1;
    }
    return {line_, 1 + at - line_start_};
  }

  void push(Kind kind, std::string text, size_t at) { tokens_.push_back({kind, std::move(text), place(at)}); }
  [[noreturn]] void fail(size_t at, const std::string& message) const { syntax_error(where_, place(at), message); }

  // The text up to a tag, less the white space that the tag takes away on its left.
  void text_before(size_t tag) {
    std::string_view text = rest().substr(0, tag == std::string::npos ? tag : tag - at_);
    if (tag != std::string::npos) text = strip_before(text, tag);
    if (!text.empty()) push(Kind::kText, std::string(text), at_);
  }

  std::string_view strip_before(std::string_view text, size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign == '-') return strip_right(text);
    if (sign == '+' || source_[tag + 1] == '{') return text;
    const size_t newline = text.rfind('\n');
    const bool starts_line = newline != std::string_view::npos || at_ == 0 || source_[at_ - 1] == '\n';
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    return starts_line && strip_right(text.substr(line)).empty() ? text.substr(0, line) : text;
  }

  // Behind "%}" or "#}": "-" takes all white space, "+" nothing, otherwise one newline goes.
  void after_end(char sign, bool takes_newline) {
    if (sign == '-') {
      at_ = source_.size() - strip_left(rest()).size();
    } else if (sign != '+' && takes_newline && next_is("\n")) {
      ++at_;
    }
  }

  void comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string::npos) fail(at_, "this comment does not end");
    const char sign = end > at_ + 2 ? source_[end - 1] : '\0';
    at_ = end + 2;
    after_end(sign, true);
  }

  // Moves over `{%- name -%}`; the sign at its end, or nothing if something else stands here.
  bool plain_tag(std::string_view name, char& end_sign) {
    std::string_view view = rest();
    if (!view.starts_with("{%")) return false;
    view.remove_prefix(2);
    if (view.starts_with('-') || view.starts_with('+')) view.remove_prefix(1);
    view = strip_left(view);
    if (!view.starts_with(name)) return false;
    view = strip_left(view.substr(name.size()));
    end_sign = view.empty() ? '\0' : view[0];
    if (end_sign == '-' || end_sign == '+') view.remove_prefix(1);
    if (!view.starts_with("%}")) return false;
    at_ = source_.size() - (view.size() - 2);
    return true;
  }

  bool raw_block() {
    const size_t start = at_;
    char sign = '\0';
    if (!plain_tag("raw", sign)) return false;
    after_end(sign, false);
    const size_t text = at_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      at_ = tag;
      if (!plain_tag("endraw", sign)) continue;
      const size_t behind = std::exchange(at_, text);
      text_before(tag);
      at_ = behind;
      after_end(sign, true);
      return true;
    }
    fail(start, "this raw block does not end (endraw)");
  }

  void code(bool is_block) {
    const size_t start = at_;
    push(is_block ? Kind::kBlockBegin : Kind::kPrintBegin, "", at_);
    at_ += 2;
    if (next_is("-") || (is_block && next_is("+"))) ++at_;
    const std::string_view end = is_block ? "%}" : "}}";
    std::string open;  // brackets that wait for their end; "}}" inside them ends no tag
    while (true) {
      at_ = source_.size() - strip_left(rest()).size();
      if (at_ >= source_.size()) fail(start, fmt::format("this tag does not end ({})", end));
      const bool sign = rest()[0] == '-' || (is_block && rest()[0] == '+');
      if (open.empty() && (next_is(end) || (sign && rest().substr(1).starts_with(end)))) {
        const char end_sign = sign ? rest()[0] : '\0';
        push(is_block ? Kind::kBlockEnd : Kind::kPrintEnd, "", at_);
        at_ += 2 + (sign ? 1 : 0);
        after_end(end_sign, is_block);
        return;
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const auto c = static_cast<unsigned char>(source_[at_]);
    if (c == '"' || c == '\'') return string(static_cast<char>(c));
    if (std::isdigit(c) != 0) return number();
    if (c == '_' || std::isalpha(c) != 0 || c >= 0x80) return name();
    for (const std::string_view op : kOperators) {
      if (!next_is(op)) continue;
      balance(op[0], open);
      push(Kind::kOperator, std::string(op), at_);
      at_ += op.size();
      return;
    }
    fail(at_, fmt::format("unexpected character '{}'", source_[at_]));
  }

  void balance(char bracket, std::string& open) const {
    const size_t opens = std::string_view("([{").find(bracket);
    const size_t closes = std::string_view(")]}").find(bracket);
    if (opens != std::string_view::npos) open += ")]}"[opens];
    if (closes == std::string_view::npos) return;
    if (open.empty() || open.back() != bracket) fail(at_, fmt::format("unexpected '{}'", bracket));
    open.pop_back();
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail(at_, "this string does not end");
    push(Kind::kString, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)), at_);
    at_ = end + 1;
  }

  void digits(size_t& end) const {
    while (end < source_.size() && (std::isdigit(static_cast<unsigned char>(source_[end])) != 0 || source_[end] == '_'))
      ++end;
  }

  void number() {
    const auto digit_at = [this](size_t i) {
      return i < source_.size() && std::isdigit(static_cast<unsigned char>(source_[i])) != 0;
    };
    size_t end = at_;
    bool is_float = false;
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';  // x.0.1: two subscripts
    digits(end);
    if (!after_dot && end + 1 < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      digits(++end);
    }
    if (!after_dot && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign = end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        is_float = true;
        end += 1 + sign;
        digits(end);
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    push(is_float ? Kind::kFloat : Kind::kInteger, std::move(text), at_);
    at_ = end;
  }

  void name() {
    size_t end = at_;
    while (end < source_.size()) {
      const Utf8Step step = utf8_step(source_, end);
      if (!step.valid || !(step.code_point == '_' || is_word(step.code_point))) break;
      end += step.size;
    }
    if (end == at_) fail(at_, "unexpected character");
    push(Kind::kName, source_.substr(at_, end - at_), at_);
    at_ = end;
  }

  std::string source_;
  const std::string& where_;
  size_t at_ = 0;
  mutable size_t counted_ = 0, line_ = 1, line_start_ = 0;  // how far lines are counted
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source, const std::string& where) {
  if (source.size() > kMaxSource) {
    throw checkpoint_error(fmt::format("{}: expected a template of at most {} KiB, found {}", where, kMaxSource >> 10,
                                       source.size() >> 10));
  }
  return Lexer(source, where).run();
}

void syntax_error(const std::string& where, Place place, const std::string& message) {
  throw checkpoint_error(fmt::format("{}: line {} column {}: {}", where, place.line, place.column, message));
}

}  // namespace lockstep::jinja
