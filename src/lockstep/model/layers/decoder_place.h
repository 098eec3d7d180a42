// Which of a model's decoders a block belongs to: several stand behind one another on the same kinds of blocks.
#pragma once

#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

/// The decoder of text, unless said otherwise.
struct DecoderPlace {
  Component component = Component::kLlm;
  Modalities runs_on = Modality::kText;
  std::string slots = {};  // what the names of its own slots begin with: "speech_" + "hidden"
  KvCache* Context::*cache = &Context::cache;
  double Context::*loss_weight = &Context::loss_weight;

  std::string slot(const std::string& name) const { return slots + name; }
};

/// A decoder of codes of speech.
inline DecoderPlace talker_place() {
  return {.component = Component::kTalker,
          .runs_on = Modality::kSpeech,
          .slots = "speech_",
          .cache = &Context::speech_cache,
          .loss_weight = &Context::speech_loss_weight};
}

}  // namespace lockstep
