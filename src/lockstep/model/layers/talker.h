// What a talker takes in: a decoder of its own behind that of text, which says codes of speech for what the other
// decoder has read and answered. Its layers and head are those of text, at talker_place().
//
// Each of its steps adds what there is of three things: the embedding of a token of text (speech_text), what the thinker made
// of a token (speech_states), and the embedding of the code said last. Source: Qwen2.5-Omni (transformers 5.23
// Qwen2_5OmniForConditionalGeneration.generate), which zeroes what media stand for among the first.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

struct TalkerSizes {
  int64_t codes = 0;      // of its vocabulary
  int64_t embedding = 0;  // of text, states and codes
  int64_t hidden = 0;     // of its layers
};

/// Reads speech_text, speech_states [L,E], speech_code_ids [L] (-1: none) and speech_positions, whose last dimension is
/// T <= L; writes speech_hidden [1,T,D] of the first T steps, and, where there are more, speech_reply [L-T,E]: what those
/// behind them, one after the other, are to be given. With speech_ahead [B,E], one step of an answer: what it is given,
/// speech_code_ids [B] being the codes said before -> speech_hidden [B,1,D].
class TalkerInput final : public Block {
 public:
  TalkerInput(std::string name, const TalkerSizes& sizes);
  Flow forward(const Params& params, const Flow& in, const Context& context) const override;
};

}  // namespace lockstep
