#include "lockstep/infer/stop_words.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr size_t kMoreTokens = 8;  // whose text may be none, or a part of a character

size_t common_bytes(const std::string& a, const std::string& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

bool ends_by_stop_word(std::span<const int32_t> tokens, const std::vector<std::string>& words,
                       const std::function<std::string(std::span<const int32_t>)>& text_of) {
  if (words.empty() || tokens.empty()) return false;
  size_t longest = 0;
  for (const auto& word : words) longest = std::max(longest, word.size());
  const auto near = tokens.last(std::min(tokens.size(), longest + kMoreTokens));  // a token has a byte, mostly more
  const std::string before = text_of(near.first(near.size() - 1)), text = text_of(near);
  const size_t known = common_bytes(before, text);
  return std::ranges::any_of(words, [&](const std::string& word) {
    const size_t from = known < word.size() ? 0 : known - word.size() + 1;  // what ends before was asked before
    return text.find(word, from) != std::string::npos;
  });
}

}  // namespace lockstep
