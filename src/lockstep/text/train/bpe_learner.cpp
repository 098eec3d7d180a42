#include "lockstep/text/train/bpe_learner.h"

#include <algorithm>

namespace lockstep {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

BpeLearner::BpeLearner(std::vector<std::string> base_tokens) : tokens_(std::move(base_tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) ids_.emplace(tokens_[i], static_cast<int32_t>(i));
}

void BpeLearner::add_word(std::vector<int32_t> ids, int64_t count) {
  words_.push_back({std::move(ids), count});
  count_word(words_.size() - 1, 1);
}

void BpeLearner::count_word(size_t index, int64_t sign) {
  const Word& word = words_[index];
  for (size_t i = 0; i + 1 < word.ids.size(); ++i) {
    Pair& pair = pairs_[key_of(word.ids[i], word.ids[i + 1])];
    pair.count += sign * word.count;
    if (sign > 0 && (pair.words.empty() || pair.words.back() != index)) pair.words.push_back(index);
  }
}

void BpeLearner::merge(Merge pair, int32_t into) {
  std::vector<size_t> touched = std::move(pairs_[key_of(pair.first, pair.second)].words);
  std::sort(touched.begin(), touched.end());
  touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
  for (const size_t index : touched) {
    std::vector<int32_t>& ids = words_[index].ids;
    std::vector<int32_t> merged;
    for (size_t i = 0; i < ids.size(); ++i) {
      const bool here = i + 1 < ids.size() && ids[i] == pair.first && ids[i + 1] == pair.second;
      merged.push_back(here ? into : ids[i]);
      if (here) ++i;
    }
    if (merged.size() == ids.size()) continue;  // an older merge took this place
    count_word(index, -1);
    ids = std::move(merged);
    count_word(index, 1);
  }
  pairs_.erase(key_of(pair.first, pair.second));
}

void BpeLearner::learn(int64_t size, int64_t min_count) {
  while (static_cast<int64_t>(tokens_.size()) < size) {
    uint64_t best = 0;
    int64_t best_count = 0;
    for (const auto& [key, pair] : pairs_) {
      if (pair.count > best_count || (pair.count == best_count && key < best)) {
        best = key;
        best_count = pair.count;
      }
    }
    if (best_count < std::max<int64_t>(1, min_count)) return;
    const Merge pair{static_cast<int32_t>(best >> 32), static_cast<int32_t>(best & 0xffffffff)};
    const std::string text = tokens_[static_cast<size_t>(pair.first)] + tokens_[static_cast<size_t>(pair.second)];
    const auto [at, fresh] = ids_.try_emplace(text, static_cast<int32_t>(tokens_.size()));
    if (fresh) tokens_.push_back(text);
    merges_.push_back(pair);
    merge(pair, at->second);
  }
}

}  // namespace lockstep
