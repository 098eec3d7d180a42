// Answers of a file that are said as well: codes of a talker beside each text.
//
// Example:
//   SpokenAnswers spoken(session, {.speaker = "Chelsie"}, batch_size);
//   generator.run([&] { return spoken.asking(next()); }, options, [&](const Generated& answer) { spoken.take(answer); });
//   spoken.say([&](const Generated& answer, const Json& speech) { keep(answer, speech); });
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/infer/decode_slots.h"
#include "lockstep/infer/speech_slots.h"
#include "lockstep/session/session.h"

namespace lockstep {

struct SpeakChoice {
  std::string speaker;  // empty: Chelsie where there is one, else the first
  SpeakOptions how;     // its batch size and collation are the session's
};

/// Whose voice it is. Throws UserError(kUsage): no talker is built, or the speaker is unknown.
std::string speaker_of(const Session& session, const SpeakChoice& choice);

class SpokenAnswers {
 public:
  /// Throws as speaker_of().
  SpokenAnswers(Session& session, const SpeakChoice& choice, int64_t batch_size);

  /// Keeps what an answer to `prompt` is said after.
  std::optional<Prompt> asking(std::optional<Prompt> prompt);
  void take(const Generated& answer) { answers_.push_back(answer); }

  /// {"speaker": name, "codes": [...]} for each answer taken, in the order in which they end; then none are left. Collective.
  using OnSpoken = std::function<void(const Generated& answer, const Json& speech)>;
  void say(const OnSpoken& on_spoken);

 private:
  Session& session_;
  const SpeechRules& rules_;
  std::string speaker_;
  SpeakOptions options_;
  std::map<int64_t, Features> asked_;
  std::vector<Generated> answers_;
};

}  // namespace lockstep
