// A row in the making: ids, labels, and where media stand.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/zoo/spelled_text.h"

namespace lockstep {

struct SpelledRow {
  std::vector<int32_t> ids, labels;
  std::vector<float> weights;  // of labels
  std::vector<int> filled;     // by token: the block that fills it, -1 for text
  std::vector<MediaBlock> media;
  bool ends_apart = false;             // as in SpelledTokens
  bool continues = false;              // as in Sample
  std::optional<size_t> history = {};  // as in TokenRow
  std::vector<int32_t> all = {};       // as in TokenRow, but never empty

  void add(const SpelledTokens& tokens) {
    ids.insert(ids.end(), tokens.ids.begin(), tokens.ids.end());
    filled.insert(filled.end(), tokens.filled.begin(), tokens.filled.end());
    labels.resize(ids.size(), kNotLearnt);
    for (size_t i = 0; i < tokens.ids.size(); ++i)
      all.push_back(tokens.filled[i] < 0 && !tokens.marks[i] ? tokens.ids[i] : kNotLearnt);
    weights.resize(ids.size(), 1);
    if (!tokens.ids.empty()) ends_apart = tokens.ends_apart;
  }
  void add_end(int32_t id, bool learnt) {
    add({.ids = {id}, .filled = {-1}, .marks = {false}});
    if (learnt) labels.back() = id;
  }
  void put_in_front(const std::vector<int32_t>& more) {
    ids.insert(ids.begin(), more.begin(), more.end());
    labels.insert(labels.begin(), more.size(), kNotLearnt);
    all.insert(all.begin(), more.size(), kNotLearnt);
    weights.insert(weights.begin(), more.size(), 1);
    filled.insert(filled.begin(), more.size(), -1);
    if (history.value_or(0) > 0) *history += more.size();
  }
};

}  // namespace lockstep
