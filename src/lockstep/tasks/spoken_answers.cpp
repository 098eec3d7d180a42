#include "lockstep/tasks/spoken_answers.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/infer/speech_prompts.h"
#include "lockstep/infer/turns.h"
#include "lockstep/tasks/answer_rows.h"

namespace lockstep {
namespace {

const SpeechRules& rules_of(const Session& session) {
  const SpeechRules* rules = session.processor().speech();
  if (rules != nullptr && session.model().speech) return *rules;
  throw usage_error(
      fmt::format("--speech: expected a model whose talker is built, found {}", session.model().family),
      "take a folder of Qwen2.5-Omni with its talker, without ENABLE_AUDIO_OUTPUT=0 or --no_build talker");
}

/// An answer that was cut by its limit is said without its last token.
bool has_words(const Generated& answer) { return answer.tokens.size() > (answer.stopped ? 0U : 1U); }

}  // namespace

std::string speaker_of(const Session& session, const SpeakChoice& choice) {
  const SpeechRules& rules = rules_of(session);
  const char* const usual = "Chelsie";
  std::vector<std::string> names;
  for (const auto& [name, token] : rules.speakers) names.push_back(name);
  if (names.empty()) {
    throw usage_error("--speech: expected the speakers of the model in its spk_dict.pt, found no such file",
                      "take it from the folder that the model was published in");
  }
  if (choice.speaker.empty()) return rules.speakers.contains(usual) ? usual : names.front();
  if (rules.speakers.contains(choice.speaker)) return choice.speaker;
  throw usage_error(fmt::format("--speaker: expected {}, found \"{}\"", join(names, " or "), choice.speaker));
}

SpokenAnswers::SpokenAnswers(Session& session, const SpeakChoice& choice, int64_t batch_size)
    : session_(session), rules_(rules_of(session)), speaker_(speaker_of(session, choice)), options_(choice.how) {
  options_.batch_size = batch_size;
  options_.collate = session.collate();
}

std::optional<Prompt> SpokenAnswers::asking(std::optional<Prompt> prompt) {
  if (prompt) asked_[prompt->row] = prompt->features;
  return prompt;
}

void SpokenAnswers::say(const OnSpoken& on_spoken) {
  const auto tell = [&](const Generated& answer, const std::vector<int32_t>& codes) {
    on_spoken(answer, {{"speaker", speaker_}, {"codes", codes}});
  };
  size_t at = 0;
  const auto next = [&]() -> std::optional<ToSay> {
    while (at < answers_.size()) {
      const Generated& answer = answers_[at++];
      if (has_words(answer)) return to_say(std::move(asked_.at(answer.row)), answer, speaker_, rules_);
      tell(answer, {});
    }
    return std::nullopt;
  };
  Job& job = session_.job();
  SpeechSlots slots(*session_.model().speech, rules_, options_);
  Turns turns(session_.executor(), job.control(), session_.plan().gathers());
  turns.run(
      slots, next,
      [&](const Spoken& spoken) {
        const auto answer = std::ranges::find_if(answers_, [&](const Generated& one) { return one.row == spoken.row; });
        tell(*answer, spoken.codes);
      },
      "answers and their speech");
  asked_.clear();
  answers_.clear();
}

}  // namespace lockstep
