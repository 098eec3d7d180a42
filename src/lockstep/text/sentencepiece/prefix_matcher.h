// A set of words, and which of them a text starts with: the user-defined symbols of a SentencePiece model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep {

class PrefixMatcher {
 public:
  void add(std::string_view word, int32_t id);
  bool empty() const { return ids_.size() == 1; }
  struct Match {
    size_t size = 0;  // 0: none
    int32_t id = -1;
  };
  /// The longest word at the start of `text`.
  Match longest(std::string_view text) const;

 private:
  std::vector<int32_t> ids_{-1};                     // by trie node: of the word that ends there
  std::unordered_map<uint64_t, uint32_t> children_;  // node * 256 + byte -> node
  bool starts_[256] = {};
};

}  // namespace lockstep
