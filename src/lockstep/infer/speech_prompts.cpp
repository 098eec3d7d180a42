#include "lockstep/infer/speech_prompts.h"

#include <algorithm>
#include <utility>

namespace lockstep {

ToSay to_say(Features prompt, const Generated& answer, const std::string& speaker, const SpeechRules& rules) {
  const size_t begin = prompt.input_ids.size();
  const size_t said = answer.tokens.size() - (answer.stopped || answer.tokens.empty() ? 0 : 1);
  Features row = std::move(prompt);
  row.labels.clear();
  row.input_ids.insert(row.input_ids.end(), answer.tokens.begin(), answer.tokens.begin() + static_cast<int64_t>(said));
  if (!row.positions.empty()) {
    const size_t axes = row.positions.size() / begin;
    int32_t next = 0;
    for (size_t axis = 0; axis < axes; ++axis) next = std::max(next, row.positions[axis * begin + begin - 1] + 1);
    std::vector<int32_t> longer;
    for (size_t axis = 0; axis < axes; ++axis) {
      const auto first = row.positions.begin() + static_cast<int64_t>(axis * begin);
      longer.insert(longer.end(), first, first + static_cast<int64_t>(begin));
      for (size_t i = 0; i < said; ++i) longer.push_back(next + static_cast<int32_t>(i));
    }
    row.positions = std::move(longer);
  }
  row.speech = speech_prompt(row, {.begin = begin, .end = begin + said}, speaker, rules);
  return {.row = answer.row, .features = std::move(row)};
}

}  // namespace lockstep
