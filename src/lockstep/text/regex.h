// Regular expressions of tokenizer files (written for Oniguruma), compiled by PCRE2 with just-in-time code.
//
// Where the two engines read the same pattern differently (\s, \w, line anchors), the pattern is rewritten first.
// Immutable after construction, so that threads may share it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
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

class Regex {
 public:
  /// Throws UserError(kCheckpoint) naming `where`, the pattern and the offset.
  Regex(std::string_view pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// All matches, left to right, not overlapping. `subject` must be valid UTF-8.
  std::vector<ByteRange> find_all(std::string_view subject) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A pattern that matches exactly this text.
std::string escape_regex(std::string_view literal);

}  // namespace lockstep
