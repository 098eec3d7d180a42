// Added tokens: the words that a tokenizer finds in a text before it normalises and splits the rest.
//
// Those with `normalized` false are searched in the raw text, the others in the normalised remainder, the longest match
// at the leftmost place first. `single_word`, `lstrip` and `rstrip` mean what they mean to Hugging Face `tokenizers`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = true;
  bool special = false;
  bool operator==(const AddedToken&) const = default;
};

/// Reads one entry of `added_tokens` (all keys) or of `added_tokens_decoder` (no "id").
AddedToken read_added_token(const Json& entry, const std::string& where);

/// A span of a text: an added token (id >= 0), or text between them.
struct TokenSpan {
  size_t begin = 0, end = 0;
  int32_t id = -1;
};

/// Finds a set of words in a text, leftmost first and longest first.
class WordFinder {
 public:
  void add(std::string_view pattern, AddedToken token);
  bool empty() const { return tokens_.empty(); }
  /// Cuts the whole text into spans; none is empty.
  std::vector<TokenSpan> cut(std::string_view text) const;

 private:
  /// The longest pattern that starts at `at`: its token, or nothing.
  const AddedToken* longest_at(std::string_view text, size_t at, size_t& end) const;

  std::vector<AddedToken> tokens_;
  std::vector<int32_t> accepts_{-1};                 // by trie node: index into tokens_
  std::unordered_map<uint64_t, uint32_t> children_;  // node * 256 + byte -> node
  bool starts_[256] = {};
};

}  // namespace lockstep
