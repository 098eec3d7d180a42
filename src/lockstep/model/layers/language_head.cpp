// B batch, T tokens, D model, V vocab.
#include "lockstep/model/layers/language_head.h"

#include <ATen/core/Tensor.h>

#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr double kIgnored = -100;

/// The target of a position is the label one further on; the last position has none.
Tensor shifted(const Tensor& labels_BT) {
  const int64_t tokens = labels_BT.size(1);
  const Tensor targets_BT = labels_BT.clone().fill_(kIgnored);
  if (tokens > 1) targets_BT.narrow(1, 0, tokens - 1).copy_(labels_BT.narrow(1, 1, tokens - 1));
  return targets_BT;
}

}  // namespace

LanguageHead::LanguageHead(std::string name, const TextConfig& config, const HeadKeys& keys)
    : Block(std::move(name), Component::kLlm, Modality::kText), norm_eps_(config.norm_eps) {
  param_at("norm.weight", keys.norm, {config.hidden});
  param_at("weight", config.tied ? keys.embedding : keys.head, {config.vocab, config.hidden}, config.tied);
  reads({"hidden", "labels"});
  writes({"loss", "correct", "logits", "last_hidden_state"});
  never_recompute();
}

Flow LanguageHead::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor &w_VD = params["weight"], &norm_D = params["norm.weight"];
  const Tensor* labels_BT = in.find("labels");
  Tensor x_BTD = in["hidden"];
  if (labels_BT == nullptr && context.logits == LogitsWanted::kLast) x_BTD = x_BTD.narrow(1, x_BTD.size(1) - 1, 1);
  const Tensor h_BTD = fn::rms_norm(x_BTD, norm_D, norm_eps_);
  tap(context, "last_hidden_state", h_BTD);
  Flow out;
  if (labels_BT != nullptr) {
    auto [loss, correct] =
        fn::chunked_cross_entropy(h_BTD.reshape({-1, h_BTD.size(2)}), w_VD, shifted(*labels_BT).reshape({-1}),
                                  context.loss_weight, context.loss_chunk);
    out.set("loss", std::move(loss));
    out.set("correct", std::move(correct));
  }
  if (context.logits != LogitsWanted::kNone) {
    const bool last = context.logits == LogitsWanted::kLast;
    const Tensor wanted = last ? h_BTD.narrow(1, h_BTD.size(1) - 1, 1) : h_BTD;
    out.set("logits", to_dtype(fn::linear(wanted, w_VD), Dtype::kF32));
  }
  if (labels_BT == nullptr && context.logits == LogitsWanted::kNone) out.set("last_hidden_state", h_BTD);
  return out;
}

}  // namespace lockstep
