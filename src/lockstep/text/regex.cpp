#include "lockstep/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8  // which of the library's three interfaces the header declares
#include <utility>

#include <fmt/format.h>
#include <pcre2.h>

#include "lockstep/base/error.h"
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

// PCRE2's \s has U+180E, which is no white space in Unicode; its \w lacks marks and connectors in this release.
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kWordInside = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

std::string translate_escape(char letter, bool in_class, const std::string& where, std::string_view pattern) {
  switch (letter) {
    case 's':
      return std::string(kSpace);
    case 'S':
      return "\\P{White_Space}";
    case 'w':
      return in_class ? std::string(kWordInside) : fmt::format("[{}]", kWordInside);
    case 'W':
      if (!in_class) return fmt::format("[^{}]", kWordInside);
      throw checkpoint_error(
          fmt::format("{}: \\W inside a character class is not supported, found in \"{}\"", where, pattern));
    case 'h':
      return in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";  // Oniguruma: a hexadecimal digit; PCRE2: a horizontal space
    default:
      return {'\\', letter};
  }
}

std::string translate(std::string_view pattern, const std::string& where) {
  std::string out;
  int class_depth = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      out += translate_escape(pattern[++i], class_depth > 0, where, pattern);
      continue;
    }
    if (class_depth > 0 && pattern.substr(i, 2) == "&&") {
      throw checkpoint_error(
          fmt::format("{}: class intersection (&&) is not supported, found in \"{}\"", where, pattern));
    }
    if (c == '[' && (class_depth == 0 || pattern.substr(i, 2) == "[:")) ++class_depth;
    if (c == ']' && class_depth > 0) --class_depth;
    out += c;
  }
  return out;
}

using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Impl {
  std::string pattern;
  Code code;
  bool jit = false;

  /// The next match at or after `from`, or false. A subject that needs more stack than the compiled code has is
  /// interpreted instead.
  bool match(std::string_view subject, size_t from, pcre2_match_data* data, ByteRange& found) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
    int rc =
        jit ? pcre2_jit_match(code.get(), bytes, subject.size(), from, 0, data, nullptr) : PCRE2_ERROR_JIT_STACKLIMIT;
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code.get(), bytes, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, nullptr);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) throw data_error(fmt::format("regular expression \"{}\" gave up: {}", pattern, error_text(rc)));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
    found = {ends[0], ends[1]};
    return true;
  }
};

Regex::Regex(std::string_view pattern, const std::string& where) {
  const std::string translated = translate(pattern, where);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get()),
            &pcre2_code_free);
  if (code == nullptr) {
    throw checkpoint_error(
        fmt::format("{}: the regular expression \"{}\" does not compile: {} (at offset {} of \"{}\")", where, pattern,
                    error_text(error), offset, translated));
  }
  const bool jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  impl_ = std::make_unique<Impl>(Impl{std::string(pattern), std::move(code), jit});
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::vector<ByteRange> Regex::find_all(std::string_view subject) const {
  std::vector<ByteRange> found;
  const MatchData data(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  ByteRange match;
  size_t from = 0;
  while (from <= subject.size() && impl_->match(subject, from, data.get(), match)) {
    found.push_back(match);
    from = match.end;
    if (match.end == match.begin) from += from < subject.size() ? utf8_size(subject[from]) : 1;
  }
  return found;
}

std::string escape_regex(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (static_cast<unsigned char>(c) < 0x80 &&
        std::string_view("\\^$.[]|()?*+{}-#&~ ").find(c) != std::string_view::npos)
      out += '\\';
    out += c;
  }
  return out;
}

}  // namespace lockstep
