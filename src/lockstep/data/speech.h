// What a model that talks is to say: codes of speech, and the steps in which it says them.
//
// Example:
//   features.speech = spoken_steps(features, answer, {.speaker = "Chelsie", .codes = {17, 4}}, rules);
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

struct Features;

/// "speech" of a row: its last answer, said by `speaker`.
struct Speech {
  std::string speaker;
  std::vector<int32_t> codes;
};

/// A family's tokens and codes around speech.
struct SpeechRules {
  std::map<std::string, int32_t> speakers;  // the token of text that each begins with
  int32_t text_end = -1, text_pad = -1;     // tokens of text behind an answer's last
  int32_t code_mask = -1, code_pad = -1, code_start = -1, code_end = -1;
  int64_t codes = 0;                   // vocabulary of codes, those four in it
  int64_t max_positions = 0;           // steps; 0: no limit
  bool is_speech(int32_t code) const;  // none of the four
};

/// Where an answer's words stand among a row's tokens, without the token that ends the turn.
struct AnswerSpan {
  size_t begin = 0, end = 0;
};

/// The steps of a talker over one row, each what it adds up: the embedding of a token of text, what the thinker made of the
/// token at a place of the row, the embedding of a code; -1: nothing.
struct SpeechSteps {
  std::vector<int32_t> text, sources, codes;  // [steps]
  std::vector<int32_t>
      labels;  // [steps] the code *at* a step before the shift by one; -100 is ignored. Empty: a prompt
  std::vector<int32_t> positions;  // [axes, steps until the first code is asked for], all steps where there are labels
};

/// Learning from a row whose answer is said: first the prompt, read as the thinker reads it; the speaker's token; then the answer's tokens beside the
/// codes, one each, with text_end and text_pad behind them for as long as codes go on; last code_end. Source:
/// transformers 5.23 Qwen2_5OmniForConditionalGeneration.generate.
/// Throws UserError(kData) naming the row: an unknown speaker (with those that there are), codes outside the vocabulary or none, an
/// empty answer, more steps than the talker was made for.
SpeechSteps spoken_steps(const Features& row, AnswerSpan answer, const Speech& speech, const SpeechRules& rules);

/// The same until the first code is asked for; behind those steps, what the later ones are given, the last of them for
/// as long as codes go on. Throws UserError(kData).
SpeechSteps speech_prompt(const Features& row, AnswerSpan answer, const std::string& speaker, const SpeechRules& rules);

/// A prompt with the tokens of an answer behind it, placed as the model places them while it answers.
Features with_answer(Features prompt, std::span<const int32_t> answer);

/// "speech" of a row. Throws UserError(kData) naming field, expected and found.
Speech speech_of_row(const Json& value, const std::string& where);

}  // namespace lockstep
