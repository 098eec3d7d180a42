#include "lockstep/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8  // which of the library's three interfaces the header declares
#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <pcre2.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/limits.h"
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
          fmt::format("{}: \\W inside a character class is not supported, found in \"{}\"", where, cut_text(pattern)));
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
          fmt::format("{}: class intersection (&&) is not supported, found in \"{}\"", where, cut_text(pattern)));
    }
    if (c == '[' && (class_depth == 0 || pattern.substr(i, 2) == "[:")) ++class_depth;
    if (c == ']' && class_depth > 0) --class_depth;
    out += c;
  }
  return out;
}

using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

// An expression may try every way to cut a text in pieces, at every place of the text: "(a+)+b". The library counts the
// tries at one place only. So it looks at some places at a time, and between them the clock is read.
constexpr uint32_t kTriesPerPlace = 1'000'000;  // "\\s+x" tries once a character: runs of a million spaces are fine
constexpr uint32_t kHeapKiB = 64 << 10;         // of the interpreter, where compiled code has too little stack
constexpr size_t kPlaces = 1024;
constexpr double kSecondsPerByte = 2e-6;       // real tokenizers: 0.05e-6
constexpr size_t kAnyText = size_t{64} << 10;  // up to so many bytes a real expression is done with whatever they are

thread_local RegexBudget* current_budget = nullptr;

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Impl {
  std::string pattern, where;
  Code code;
  bool jit = false;

  /// The next match that begins in the kPlaces bytes at and after `from`, or false. A subject that needs more stack than the compiled code has is
  /// interpreted instead.
  bool match(std::string_view subject, size_t from, pcre2_match_data* data, pcre2_match_context* limits,
             ByteRange& found) const {
    const auto* bytes = reinterpret_cast<PCRE2_SPTR>(subject.data());
    pcre2_set_offset_limit(limits, from + kPlaces);
    int rc =
        jit ? pcre2_jit_match(code.get(), bytes, subject.size(), from, 0, data, limits) : PCRE2_ERROR_JIT_STACKLIMIT;
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code.get(), bytes, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, limits);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) give_up(error_text(rc));
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
    found = {ends[0], ends[1]};
    return true;
  }

  [[noreturn]] void give_up(const std::string& why) const {
    const size_t bytes = RegexBudget::current().bytes();
    const std::string told = fmt::format("{}: the regular expression \"{}\" gave up on a text of {} bytes: {}", where,
                                         cut_text(pattern), bytes, why);
    if (bytes > kAnyText) throw data_error(told, "does one character stand there a million times? Leave the text out");
    throw checkpoint_error(told, "take the file of the model's maker, or an expression without repeats inside repeats");
  }
};

Regex::Regex(std::string_view pattern, const std::string& where) {
  const std::string translated = translate(pattern, where);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context.get(), kMaxPattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_USE_OFFSET_LIMIT, &error, &offset, context.get()),
      &pcre2_code_free);
  if (code == nullptr) {
    throw checkpoint_error(
        fmt::format("{}: the regular expression \"{}\" does not compile: {} (at offset {} of \"{}\")", where,
                    cut_text(pattern), error_text(error), offset, cut_text(translated)));
  }
  const bool jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  impl_ = std::make_unique<Impl>(Impl{std::string(pattern), where, std::move(code), jit});
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

RegexBudget::RegexBudget(size_t bytes, double seconds)
    : outer_(current_budget), bytes_(bytes), seconds_(seconds + kSecondsPerByte * static_cast<double>(bytes)) {
  if (outer_ == nullptr) current_budget = this;
}

RegexBudget::~RegexBudget() {
  if (outer_ == nullptr) current_budget = nullptr;
}

RegexBudget& RegexBudget::current() {
  check(current_budget != nullptr, "an expression is counted by a budget");
  return *current_budget;
}

bool RegexBudget::spend(size_t places) {
  places_ += places;
  if (places_ < kPlaces) return true;
  places_ = 0;
  const double now = thread_seconds();
  if (!deadline_) deadline_ = now + seconds_;
  return now <= *deadline_;
}

std::vector<ByteRange> Regex::find_all(std::string_view subject) const {
  RegexBudget alone(subject.size());
  RegexBudget& budget = RegexBudget::current();
  std::vector<ByteRange> found;
  const MatchData data(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const MatchContext limits(pcre2_match_context_create(nullptr), &pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), kTriesPerPlace);
  pcre2_set_heap_limit(limits.get(), kHeapKiB);
  const auto spend = [&](size_t places) {
    if (!budget.spend(places)) impl_->give_up("it takes too long");
  };
  ByteRange match;
  size_t from = 0;
  while (from <= subject.size()) {
    if (!impl_->match(subject, from, data.get(), limits.get(), match)) {
      if (subject.size() - from <= kPlaces) {
        spend(subject.size() - from);
        break;
      }
      from += kPlaces + 1;  // the limit is a place that was looked at
      while (from < subject.size() && (static_cast<unsigned char>(subject[from]) & 0xC0) == 0x80) ++from;
      spend(kPlaces);
      continue;
    }
    spend(1 + std::max(match.begin, from) - from);
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
