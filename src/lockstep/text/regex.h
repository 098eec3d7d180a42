// Regular expressions of tokenizer files (written for Oniguruma), compiled by PCRE2 with just-in-time code.
//
// Where the two engines read the same pattern differently (\s, \w, line anchors), the pattern is rewritten first.
// Immutable after construction, so that threads may share it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Bytes [begin, end) of a subject.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

/// What all expressions may cost together while it stands in a thread, where the outermost counts: a text goes through
/// many steps, and each in many pieces. Without one, each find_all has its own.
class RegexBudget {
 public:
  /// `bytes`: of the text.
  explicit RegexBudget(size_t bytes, double seconds = 10);
  ~RegexBudget();
  RegexBudget(const RegexBudget&) = delete;
  RegexBudget& operator=(const RegexBudget&) = delete;

  static RegexBudget& current();
  size_t bytes() const { return bytes_; }
  /// False when the time is over: so many places of the text have been looked at.
  bool spend(size_t places);

 private:
  RegexBudget* const outer_;
  const size_t bytes_;
  const double seconds_;
  size_t places_ = 0;  // since the clock was read
  std::optional<double> deadline_;
};

class Regex {
 public:
  /// Throws UserError(kCheckpoint) naming `where`, the pattern and the offset.
  Regex(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// All matches, left to right, not overlapping. `subject` must be valid UTF-8. Throws UserError where too many ways are
  /// tried: kCheckpoint, and kData of a text that is longer than any that an expression must be done with.
  std::vector<ByteRange> find_all(std::string_view subject) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A pattern that matches exactly this text.
std::string escape_regex(std::string_view literal);

}  // namespace lockstep
