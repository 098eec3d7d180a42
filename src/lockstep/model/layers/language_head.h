// The final norm and the way back to the vocabulary: a loss, or logits.
#pragma once

#include <string>

#include "lockstep/model/block.h"
#include "lockstep/model/layers/decoder_place.h"
#include "lockstep/model/layers/text_config.h"

namespace lockstep {

/// Where the head's tensors stand; `embedding` is used when the config ties the head to it.
struct HeadKeys {
  std::string norm, head, embedding;
};

/// Reads hidden [B,T,D] and labels [B,T] (before the shift by one, -100 ignored). With labels it writes loss (f32
/// scalar: summed cross entropy * loss_weight) and correct (i64 scalar: argmax hits); where logits are wanted, logits
/// [B, 1 or T, V] f32. Taps "last_hidden_state". Never recomputed: its backward follows at once. Slots and the tap are
/// named as its place says. Where a talker is to speak of what it read (speech_sources [L], places among the B*T tokens, -1:
/// nothing) it also writes its states there, normed, speech_states [L,D].
class LanguageHead final : public Block {
 public:
  LanguageHead(std::string name, const TextConfig& config, const HeadKeys& keys, DecoderPlace place = {});
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;

 private:
  double norm_eps_;
  DecoderPlace place_;
};

}  // namespace lockstep
