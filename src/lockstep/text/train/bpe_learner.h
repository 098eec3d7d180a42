// Byte pair encoding, learnt: the most frequent neighbours become one token, again and again. Deterministic: ties go to
// the pair with the lower ids.
//
// Example:
//   BpeLearner learner({"a", "b", " "});
//   learner.add_word({0, 1}, 12);               // "ab" occurs 12 times
//   learner.learn(4);                           // until there are 4 tokens
//   learner.tokens();  learner.merges();
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {

class BpeLearner {
 public:
  using Merge = std::pair<int32_t, int32_t>;

  /// The tokens that stand before any merge; their places are their ids.
  explicit BpeLearner(std::vector<std::string> base_tokens);

  /// A word as ids of base tokens, and how often it occurs.
  void add_word(std::vector<int32_t> ids, int64_t count);
  /// Merges until there are `size` tokens or no pair occurs at least `min_count` times.
  void learn(int64_t size, int64_t min_count = 2);

  const std::vector<std::string>& tokens() const { return tokens_; }  // the learnt ones behind the base
  const std::vector<Merge>& merges() const { return merges_; }        // in the order in which they were learnt

 private:
  struct Word {
    std::vector<int32_t> ids;
    int64_t count;
  };
  struct Pair {
    int64_t count = 0;
    std::vector<size_t> words;  // where it occurs or occurred
  };
  void count_word(size_t index, int64_t sign);
  void merge(Merge pair, int32_t into);

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Merge> merges_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
};

}  // namespace lockstep
