#include "lockstep/data/speech.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/features.h"
#include "lockstep/data/row_media.h"

namespace lockstep {
namespace {

constexpr int32_t kIgnored = -100, kNothing = -1;

int32_t token_of_speaker(const Features& row, const std::string& speaker, const SpeechRules& rules) {
  const auto known = rules.speakers.find(speaker);
  if (known != rules.speakers.end()) return known->second;
  std::vector<std::string> names;
  for (const auto& [name, token] : rules.speakers) names.push_back(name);
  if (names.empty()) {
    throw data_error(
        row.sample.where + ": expected the model's spk_dict.pt, whose speakers rows name, found no such file",
        "take it from the folder that the model was published in");
  }
  throw data_error(fmt::format("{}: field \"speech.speaker\": expected {}, found \"{}\"", row.sample.where,
                               join(names, " or "), speaker),
                   "the speakers of a model stand in its spk_dict.pt");
}

/// Steps as they are made, one behind the other.
class Steps {
 public:
  Steps(const Features& row, AnswerSpan answer, const SpeechRules& rules)
      : row_(row), answer_(answer), rules_(rules), filled_(filled_by(row.media, row.input_ids.size())) {
    if (answer.begin < answer.end) return;
    throw data_error(fmt::format("{}: expected an answer to say, found an empty one", row.sample.where));
  }

  /// Up to the one behind which the first code comes.
  void begin(const std::string& speaker) {
    for (size_t i = 0; i < answer_.begin; ++i) add_token(i, kNothing);
    add(token_of_speaker(row_, speaker, rules_), kNothing, rules_.code_pad);
    add_token(answer_.begin, rules_.code_start);
  }
  /// What comes `k` steps behind those.
  void later(size_t k, int32_t code) {
    const size_t place = answer_.begin + 1 + k;
    if (place < answer_.end) return add_token(place, code);
    add(place == answer_.end ? rules_.text_end : rules_.text_pad, kNothing, code);
  }

  /// Of the thinker's for what it read, one further on all axes for each step behind.
  void place() {
    const size_t tokens = row_.input_ids.size(), steps = made.text.size(), read = answer_.begin;
    const size_t axes = row_.positions.empty() ? 1 : row_.positions.size() / tokens;
    const auto at = [&](size_t axis, size_t i) {
      return row_.positions.empty() ? static_cast<int32_t>(i) : row_.positions[axis * tokens + i];
    };
    int32_t next = 0;
    for (size_t axis = 0; axis < axes && read > 0; ++axis) next = std::max(next, at(axis, read - 1) + 1);
    for (size_t axis = 0; axis < axes; ++axis) {
      for (size_t i = 0; i < steps; ++i) {
        made.positions.push_back(i < read ? at(axis, i) : next + static_cast<int32_t>(i - read));
      }
    }
    const auto last = static_cast<int64_t>(steps);
    if (rules_.max_positions <= 0 || last <= rules_.max_positions) return;
    throw data_error(
        fmt::format("{}: expected at most {} steps of speech (what this talker was made for), found {}: {} "
                    "tokens read and {} codes",
                    row_.sample.where, rules_.max_positions, last, read, steps - read - 2));
  }

  SpeechSteps made;

 private:
  void add(int32_t text, int32_t source, int32_t code) {
    made.text.push_back(text);
    made.sources.push_back(source);
    made.codes.push_back(code);
  }
  void add_token(size_t i, int32_t code) {
    add(filled_[i] < 0 ? row_.input_ids[i] : kNothing, static_cast<int32_t>(i), code);
  }

  const Features& row_;
  AnswerSpan answer_;
  const SpeechRules& rules_;
  std::vector<int> filled_;
};

}  // namespace

bool SpeechRules::is_speech(int32_t code) const {
  return code >= 0 && code < codes && code != code_mask && code != code_pad && code != code_start && code != code_end;
}

SpeechSteps spoken_steps(const Features& row, AnswerSpan answer, const Speech& speech, const SpeechRules& rules) {
  for (size_t i = 0; i < speech.codes.size(); ++i) {
    if (rules.is_speech(speech.codes[i])) continue;
    throw data_error(
        fmt::format("{}: field \"speech.codes[{}]\": expected a code of speech, 0 to {} but {}, {}, {} and {}, "
                    "found {}",
                    row.sample.where, i, rules.codes - 1, rules.code_pad, rules.code_start, rules.code_end,
                    rules.code_mask, speech.codes[i]));
  }
  Steps steps(row, answer, rules);
  steps.begin(speech.speaker);
  steps.made.labels.assign(steps.made.text.size(), kIgnored);
  for (size_t k = 0; k <= speech.codes.size(); ++k) {
    const int32_t code = k < speech.codes.size() ? speech.codes[k] : rules.code_end;
    steps.later(k, code);
    steps.made.labels.push_back(code);
  }
  steps.place();
  return std::move(steps.made);
}

SpeechSteps speech_prompt(const Features& row, AnswerSpan answer, const std::string& speaker,
                          const SpeechRules& rules) {
  Steps steps(row, answer, rules);
  steps.begin(speaker);
  steps.place();
  for (size_t k = 0; k < answer.end - answer.begin + 1; ++k) steps.later(k, kNothing);
  return std::move(steps.made);
}

Features with_answer(Features prompt, std::span<const int32_t> answer) {
  const size_t begin = prompt.input_ids.size();
  prompt.labels.clear();
  prompt.input_ids.insert(prompt.input_ids.end(), answer.begin(), answer.end());
  if (prompt.positions.empty()) return prompt;
  const size_t axes = prompt.positions.size() / begin;
  const std::vector<int32_t> placed = std::exchange(prompt.positions, {});
  int32_t next = 0;
  for (size_t axis = 0; axis < axes; ++axis) next = std::max(next, placed[axis * begin + begin - 1] + 1);
  for (size_t axis = 0; axis < axes; ++axis) {
    const auto first = placed.begin() + static_cast<int64_t>(axis * begin);
    prompt.positions.insert(prompt.positions.end(), first, first + static_cast<int64_t>(begin));
    for (size_t i = 0; i < answer.size(); ++i) prompt.positions.push_back(next + static_cast<int32_t>(i));
  }
  return prompt;
}

Speech speech_of_row(const Json& value, const std::string& where) {
  const auto speaker = value.is_object() ? value.find("speaker") : value.end();
  const auto codes = value.is_object() ? value.find("codes") : value.end();
  if (!value.is_object() || value.size() != 2 || speaker == value.end() || codes == value.end()) {
    throw field_error(where, "speech", R"({"speaker": name, "codes": [...]})", value);
  }
  if (!speaker->is_string()) throw field_error(where, "speech.speaker", "the name of a speaker", *speaker);
  if (!codes->is_array() || codes->empty())
    throw field_error(where, "speech.codes", "a list of codes, at least one", *codes);
  Speech speech{.speaker = speaker->get<std::string>(), .codes = {}};
  for (size_t i = 0; i < codes->size(); ++i) {
    const Json& code = (*codes)[i];
    const bool fits = code.is_number_integer() && code >= 0 && code <= std::numeric_limits<int32_t>::max();
    if (!fits) throw field_error(where, fmt::format("speech.codes[{}]", i), "a code: a whole number from 0", code);
    speech.codes.push_back(code.get<int32_t>());
  }
  return speech;
}

}  // namespace lockstep
