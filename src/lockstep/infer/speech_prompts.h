// Answers that were given in text, as rows to be said.
#pragma once

#include <span>
#include <string>

#include "lockstep/data/speech.h"
#include "lockstep/infer/decode_slots.h"
#include "lockstep/infer/speech_slots.h"

namespace lockstep {

/// Prompt and answer as one row. An answer that was cut by its limit is said without its last token, whose state the
/// model has not made: as transformers' Qwen2_5OmniForConditionalGeneration.generate does. Throws UserError(kData): nothing to say.
ToSay to_say(Features prompt, const Generated& answer, const std::string& speaker, const SpeechRules& rules);

}  // namespace lockstep
