#include "lockstep/model/layers/talker.h"

#include <ATen/core/Tensor.h>

#include "lockstep/model/layers/tap.h"
#include "lockstep/model/layers/token_embedding.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

TalkerInput::TalkerInput(std::string name, const TalkerSizes& sizes)
    : Block(std::move(name), Component::kTalker, Modality::kSpeech) {
  lookup_table("model.embed_tokens.weight", {sizes.codes, sizes.embedding});
  param("thinker_to_talker_proj.weight", {sizes.hidden, sizes.embedding});
  param("thinker_to_talker_proj.bias", {sizes.hidden});
  reads({"speech_text", "speech_states", "speech_code_ids", "speech_positions", "speech_ahead"});
  writes({"speech_hidden", "speech_reply"});
  never_recompute();
}

Flow TalkerInput::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor codes_LE = embed_some(params, "model.embed_tokens", in["speech_code_ids"]);
  const auto projected = [&](const Tensor& x) { return params.linear("thinker_to_talker_proj", x); };
  if (const Tensor* ahead_BE = in.find("speech_ahead")) {
    return {{"speech_hidden", projected(codes_LE.add(*ahead_BE).unsqueeze(1))}};
  }
  const Tensor given_LE = in["speech_states"].add(in["speech_text"]).add(codes_LE);
  const Tensor& positions = in["speech_positions"];
  const int64_t steps = given_LE.size(0), now = positions.size(positions.dim() - 1);
  const Tensor now_1TE = given_LE.narrow(0, 0, now).unsqueeze(0);
  tap(context, "speech_inputs", now_1TE);
  Flow out{{"speech_hidden", projected(now_1TE)}};
  if (steps > now) out.set("speech_reply", given_LE.narrow(0, now, steps - now));
  return out;
}

}  // namespace lockstep
