// B batch, T tokens, D model, V vocab.
#include "lockstep/model/layers/language_head.h"

#include <ATen/core/Tensor.h>

#include "lockstep/model/layers/tap.h"
#include "lockstep/model/layers/token_embedding.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr double kIgnored = -100;
const char* const kSources = "speech_sources";

/// The target of a position is the label one further on; the last position has none.
Tensor shifted(const Tensor& labels_BT) {
  const int64_t tokens = labels_BT.size(1);
  const Tensor targets_BT = labels_BT.clone().fill_(kIgnored);
  if (tokens > 1) targets_BT.narrow(1, 0, tokens - 1).copy_(labels_BT.narrow(1, 1, tokens - 1));
  return targets_BT;
}

/// Labels of one weight each, and the weights: slots of a batch in which some count more than others.
const char* const kWeighted = "weighted_labels";
const char* const kWeights = "label_weights";

}  // namespace

LanguageHead::LanguageHead(std::string name, const TextConfig& config, const HeadKeys& keys, DecoderPlace place)
    : Block(std::move(name), place.component, place.runs_on), norm_eps_(config.norm_eps), place_(std::move(place)) {
  param_at("norm.weight", keys.norm, {config.hidden});
  const Shape shape{config.vocab, config.hidden};
  if (config.tied) {
    tied("weight", keys.embedding, shape, keys.head);
  } else {
    param_at("weight", keys.head, shape);
  }
  reads({place_.slot("hidden"), place_.slot("labels"), kSources, kWeighted, kWeights});
  writes({place_.slot("loss"), place_.slot("correct"), place_.slot("logits"), place_.slot("last_hidden_state"),
          "speech_states"});
  never_recompute();
}

Flow LanguageHead::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& norm_D = params["norm.weight"];
  const Tensor* labels_BT = in.find(place_.slot("labels"));
  const Tensor* sources_L = place_.slots.empty() ? in.find(kSources) : nullptr;
  Tensor x_BTD = in[place_.slot("hidden")];
  if (labels_BT == nullptr && sources_L == nullptr && context.logits == LogitsWanted::kLast) {
    x_BTD = x_BTD.narrow(1, x_BTD.size(1) - 1, 1);
  }
  const Tensor h_BTD = fn::rms_norm(x_BTD, norm_D, norm_eps_);
  tap(context, place_.slot("last_hidden_state"), h_BTD);
  Flow out;
  if (sources_L != nullptr) out.set("speech_states", some_rows(*sources_L, h_BTD.reshape({-1, h_BTD.size(2)})));
  if (labels_BT != nullptr) {
    const auto loss_of = [&](const Tensor& some_BT) {
      return params.cross_entropy("", h_BTD.reshape({-1, h_BTD.size(2)}), shifted(some_BT).reshape({-1}),
                                  context.*place_.loss_weight, context.loss_chunk,
                                  place_.slots.empty() ? context.label_smoothing : 0);
    };
    const Tensor* weighted_KBT = place_.slots.empty() ? in.find(kWeighted) : nullptr;
    auto [loss, correct] = loss_of(weighted_KBT == nullptr ? *labels_BT : weighted_KBT->select(0, 0));
    for (int64_t k = 0; weighted_KBT != nullptr && k < weighted_KBT->size(0); ++k) {
      const Tensor weight = in[kWeights].select(0, k);
      if (k == 0) {
        loss = loss.mul(weight);
        continue;
      }
      const auto [more, hits] = loss_of(weighted_KBT->select(0, k));
      loss = loss.add(more.mul(weight));
      correct = correct.add(hits);
    }
    out.set(place_.slot("loss"), std::move(loss));
    out.set(place_.slot("correct"), std::move(correct));
  }
  if (context.logits != LogitsWanted::kNone) {
    const bool last = context.logits == LogitsWanted::kLast;
    const Tensor wanted = last ? h_BTD.narrow(1, h_BTD.size(1) - 1, 1) : h_BTD;
    out.set(place_.slot("logits"), to_dtype(params.linear("", wanted), Dtype::kF32));
  }
  if (labels_BT == nullptr && context.logits == LogitsWanted::kNone) out.set(place_.slot("last_hidden_state"), h_BTD);
  return out;
}

}  // namespace lockstep
