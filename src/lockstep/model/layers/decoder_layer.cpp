// B batch, T tokens, S tokens with those in the cache, D model, N query heads, K kv heads, H head size, F mlp.
#include "lockstep/model/layers/decoder_layer.h"

#include <tuple>

#include <ATen/core/Tensor.h>

#include "lockstep/model/kv_cache.h"
#include "lockstep/model/layers/gated_mlp.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

DecoderLayer::DecoderLayer(std::string name, const TextConfig& config, int64_t index, DecoderPlace place)
    : Block(std::move(name), place.component, place.runs_on),
      config_(config),
      place_(std::move(place)),
      index_(index),
      window_(config.window(index)) {
  const auto key = [&](const std::string& local) { return this->name() + "." + local; };
  const int64_t hidden = config.hidden, q = config.heads * config.head_dim, kv = config.kv_heads * config.head_dim;
  param("input_layernorm.weight", {hidden});
  fused("self_attn.qkv.weight", {{key("self_attn.q_proj.weight"), {q, hidden}},
                                 {key("self_attn.k_proj.weight"), {kv, hidden}},
                                 {key("self_attn.v_proj.weight"), {kv, hidden}}});
  if (config.qkv_bias) {
    fused("self_attn.qkv.bias", {{key("self_attn.q_proj.bias"), {q}},
                                 {key("self_attn.k_proj.bias"), {kv}},
                                 {key("self_attn.v_proj.bias"), {kv}}});
  }
  if (config.qk_norm) {
    param("self_attn.q_norm.weight", {config.head_dim});
    param("self_attn.k_norm.weight", {config.head_dim});
  }
  param("self_attn.o_proj.weight", {hidden, q});
  if (config.output_bias) param("self_attn.o_proj.bias", {hidden});
  param("post_attention_layernorm.weight", {hidden});
  fused("mlp.gate_up.weight",
        {{key("mlp.gate_proj.weight"), {config.mlp, hidden}}, {key("mlp.up_proj.weight"), {config.mlp, hidden}}});
  if (config.mlp_bias) {
    fused("mlp.gate_up.bias", {{key("mlp.gate_proj.bias"), {config.mlp}}, {key("mlp.up_proj.bias"), {config.mlp}}});
  }
  param("mlp.down_proj.weight", {hidden, config.mlp});
  if (config.mlp_bias) param("mlp.down_proj.bias", {hidden});
  reads({place_.slot("hidden"), place_.slot("cos"), place_.slot("sin"), place_.slot("mask"), place_.slot("row_ends")});
  writes({place_.slot("hidden")});
}

Flow DecoderLayer::forward(const Params& params, const Flow& in, const Context& context) const {
  const Tensor& x_BTD = in[place_.slot("hidden")];
  if (index_ == 0) tap(context, place_.slot("inputs_embeds"), x_BTD);
  const Tensor attended_BTD =
      attend(params, fn::rms_norm(x_BTD, params["input_layernorm.weight"], config_.norm_eps), in, context);
  tap(context, name() + ".attn_out", attended_BTD);
  if (one_more(context) && !context.tap) {  // by as few kernels as a GPU can: a token's are short
    const auto [sum_BTD, normed_BTD] =
        fn::add_and_norm(x_BTD, attended_BTD, params["post_attention_layernorm.weight"], config_.norm_eps);
    return {{place_.slot("hidden"), add_gated_mlp(sum_BTD, params, normed_BTD, config_.activation)}};
  }
  const Tensor h_BTD = x_BTD.add(attended_BTD);
  const Tensor fed_BTD = gated_mlp(
      params, fn::rms_norm(h_BTD, params["post_attention_layernorm.weight"], config_.norm_eps), config_.activation);
  tap(context, name() + ".mlp_out", fed_BTD);
  Tensor out_BTD = h_BTD.add(fed_BTD);
  tap(context, name() + ".out", out_BTD);
  return {{place_.slot("hidden"), std::move(out_BTD)}};
}

/// Whether there is one token of each row of a cache, and not a prompt.
bool DecoderLayer::one_more(const Context& context) const {
  return context.*place_.cache != nullptr && context.slot < 0;
}

Tensor DecoderLayer::attend(const Params& params, const Tensor& x_BTD, const Flow& in, const Context& context) const {
  Tensor qkv = params.linear("self_attn.qkv", x_BTD);
  const fn::HeadCounts counts{config_.heads, config_.kv_heads, config_.head_dim};
  if (config_.qk_norm) {
    qkv = fn::norm_heads(
        qkv, counts,
        {.q = params["self_attn.q_norm.weight"], .k = params["self_attn.k_norm.weight"], .eps = config_.norm_eps});
  }
  const Tensor &cos = in[place_.slot("cos")], &sin = in[place_.slot("sin")];
  KvCache* cache = context.*place_.cache;
  if (one_more(context)) {
    return params.linear("self_attn.o_proj", fn::merge_heads(cache->step(index_, {qkv, cos, sin, counts}, window_)));
  }
  auto [q_BNTH, k_BKTH, v_BKTH] = fn::split_heads(qkv, cos, sin, counts, /*repeat_kv=*/cache == nullptr);
  if (cache != nullptr) std::tie(k_BKTH, v_BKTH) = cache->write(index_, context.slot, k_BKTH, v_BKTH);
  const Tensor o_BNTH = fn::attention(q_BNTH, k_BKTH, v_BKTH,
                                      {.causal = true,
                                       .window = window_,
                                       .mask = in.find(place_.slot("mask")),
                                       .row_ends = in.find(place_.slot("row_ends"))});
  return params.linear("self_attn.o_proj", fn::merge_heads(o_BNTH));
}

}  // namespace lockstep
