#include "lockstep/text/sentencepiece/prefix_matcher.h"

namespace lockstep {

void PrefixMatcher::add(std::string_view word, int32_t id) {
  if (word.empty()) return;
  uint32_t node = 0;
  for (const char c : word) {
    const uint64_t key = uint64_t{node} * 256 + static_cast<unsigned char>(c);
    const auto [place, is_new] = children_.emplace(key, static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(-1);
    node = place->second;
  }
  ids_[node] = id;
  starts_[static_cast<unsigned char>(word[0])] = true;
}

PrefixMatcher::Match PrefixMatcher::longest(std::string_view text) const {
  Match found;
  if (text.empty() || !starts_[static_cast<unsigned char>(text[0])]) return found;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto child = children_.find(uint64_t{node} * 256 + static_cast<unsigned char>(text[i]));
    if (child == children_.end()) break;
    node = child->second;
    if (ids_[node] >= 0) found = {i + 1, ids_[node]};
  }
  return found;
}

}  // namespace lockstep
