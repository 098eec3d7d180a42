#include "lockstep/infer/speech_prompts.h"

#include <span>
#include <utility>

namespace lockstep {

ToSay to_say(Features prompt, const Generated& answer, const std::string& speaker, const SpeechRules& rules) {
  const size_t begin = prompt.input_ids.size();
  std::span<const int32_t> said = answer.tokens;
  if (!answer.stopped && !said.empty()) said = said.first(said.size() - 1);
  Features row = with_answer(std::move(prompt), said);
  row.speech = speech_prompt(row, {.begin = begin, .end = begin + said.size()}, speaker, rules);
  return {.row = answer.row, .features = std::move(row)};
}

}  // namespace lockstep
