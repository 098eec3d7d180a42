#include "lockstep/cli/verify_model.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/backend_solo.h"
#include "lockstep/exec/executor.h"
#include "lockstep/model/kv_cache.h"
#include "lockstep/model/weights.h"
#include "lockstep/state/sharded_adamw.h"
#include "lockstep/tensor/make.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

using Taps = std::vector<std::pair<std::string, Tensor>>;

bool is_left_padded(const Tensor& mask_BT) { return mask_BT.select(1, 0).min().item<int64_t>() == 0; }

/// What a left-padded batch needs besides its tokens: positions from each row's first token, and who may look where.
void add_positions(Flow& flow, const Tensor& mask_BT) {
  flow.set("positions", mask_BT.cumsum(1).sub(1).clamp_min(0));
  const int64_t rows = mask_BT.size(0), tokens = mask_BT.size(1);
  const Tensor seen_BTS = mask_BT.ne(0).unsqueeze(1).expand({rows, tokens, tokens}).tril();
  flow.set("mask", seen_BTS.unsqueeze(1));
}

/// Taps -> the names of a reference. Decoder layers are those that tap their attention; other layers are the tower's.
Named named(const Taps& taps) {
  Named out;
  std::vector<std::string> text, vision;
  const auto stem_of = [](const std::string& name, const char* end) {
    return name.substr(0, name.size() - std::string(end).size());
  };
  for (const auto& [name, value] : taps) {
    if (name.ends_with(".attn_out")) text.push_back(stem_of(name, ".attn_out"));
  }
  for (const auto& [name, value] : taps) {
    if (!name.ends_with(".out")) continue;
    const std::string stem = stem_of(name, ".out");
    const auto at = std::find(text.begin(), text.end(), stem);
    if (at == text.end()) {
      out["vision_layer_" + std::to_string(vision.size())] = value;
      vision.push_back(stem);
    } else {
      out["layer_" + std::to_string(at - text.begin())] = value;
    }
  }
  for (const auto& [name, value] : taps) {
    if (name.find('.') == std::string::npos) out[name] = value;
    if (!text.empty() && name == text.front() + ".attn_out") out["layer0_attn_out"] = value;
    if (!text.empty() && name == text.front() + ".mlp_out") out["layer0_mlp_out"] = value;
  }
  return out;
}

Tensor pooled(const Tensor& hidden_BTD, const Tensor& mask_BT) {
  const Tensor weight_BT1 = to_dtype(mask_BT, Dtype::kF32).unsqueeze(2);
  return hidden_BTD.mul(weight_BT1).sum(1).div(weight_BT1.sum(1).clamp_min(1));
}

Tensor mask_of(const Named& inputs) {
  const auto mask = inputs.find("attention_mask");
  return mask != inputs.end() ? mask->second : inputs.at("input_ids").new_ones(inputs.at("input_ids").sizes());
}

}  // namespace

const Family* family_built(const HfConfig& config) {
  const auto architectures = config.texts("architectures");
  for (const auto& family : families()) {
    for (const auto& name : family.architectures) {
      if (std::find(architectures.begin(), architectures.end(), name) != architectures.end()) return &family;
    }
    if (architectures.empty() && family.name == config.text("model_type", "")) return &family;
  }
  return nullptr;
}

struct VerifyModel::Impl {
  Model model;
  int32_t media_token;
  Plan plan;
  BufferPool pool{"cpu"};
  Communicator comm{World{}, make_solo_backend("cpu")};
  ParamStore store;
  Executor executor;
  ShardedAdamW adamw;

  Impl(const std::filesystem::path& dir, const HfConfig& config, const Family& family, const PlanOptions& options,
       const AdamWOptions& adamw_options)
      : model(family.build(config)),
        media_token(family.media_token ? family.media_token(config) : -1),
        plan(make_plan(model, options)),
        store(plan, 0, pool),
        executor(model, plan, store, comm),
        adamw(store, comm, adamw_options) {
    const Weights weights = Weights::open(dir);
    store.load(weights, KeyMap::match(model, weights));
  }

  Flow flow_of(const Named& inputs, bool labelled) const {
    const Tensor& ids_BT = inputs.at("input_ids");
    Flow flow{{"input_ids", ids_BT}};
    if (labelled) flow.set("labels", inputs.at("labels"));
    if (const Tensor mask_BT = mask_of(inputs); is_left_padded(mask_BT)) add_positions(flow, mask_BT);
    const auto pixels = inputs.find("pixel_values");
    if (pixels != inputs.end()) {
      flow.set("pixel_values", pixels->second);
      flow.set("media_index", ids_BT.reshape({-1}).eq(media_token).nonzero().reshape({-1}));
    }
    return flow;
  }
  static Presence presence(const Named& inputs) { return {.rows = true, .image = inputs.contains("pixel_values")}; }
};

VerifyModel::VerifyModel(const std::filesystem::path& checkpoint, const PlanOptions& plan, const AdamWOptions& adamw) {
  const HfConfig config = HfConfig::load(checkpoint);
  impl_ = std::make_unique<Impl>(checkpoint, config, family_of(config), plan, adamw);
}

VerifyModel::~VerifyModel() = default;

Named VerifyModel::forward(const Named& inputs) {
  Taps taps;
  Context context{.logits = LogitsWanted::kAll};
  context.tap = [&](const std::string& name, const Tensor& value) {
    taps.emplace_back(name, to_dtype(value.detach(), Dtype::kF32).clone());
  };
  const Presence here = Impl::presence(inputs);
  const Flow flow = impl_->executor.forward(impl_->flow_of(inputs, false), context, here, here);
  Named out = named(taps);
  out["logits"] = to_dtype(flow["logits"], Dtype::kF32);
  if (out.contains("last_hidden_state")) out["pooled"] = pooled(out["last_hidden_state"], mask_of(inputs));
  return out;
}

double VerifyModel::backward(const Named& inputs, double loss_weight) {
  const Presence here = Impl::presence(inputs);
  const Context context{.training = true, .loss_weight = loss_weight};
  return impl_->executor.train(impl_->flow_of(inputs, true), context, here, here).loss.item<double>();
}

Named VerifyModel::gradients() {
  Named out;
  impl_->store.visit_gradients(
      impl_->comm, 0, [&](const ParamSource& source, const Tensor& value) { out[source.key] = value.clone(); });
  for (const auto& source : impl_->model.unused) out[source.key] = zeros(source.shape, Dtype::kF32);
  return out;
}

Named VerifyModel::weights() {
  Named out;
  impl_->store.visit_full(impl_->comm, 0, Dtype::kF32,
                          [&](const ParamSource& source, const Tensor& value) { out[source.key] = value.clone(); });
  return out;
}

Tensor VerifyModel::generate(const Named& inputs, int64_t steps) {
  Tensor mask_BS = mask_of(inputs);
  const int64_t rows = mask_BS.size(0);
  KvCache cache(impl_->model.dims.layers, mask_BS.size(1) + steps);
  const Context context{.logits = LogitsWanted::kLast, .cache = &cache};
  Presence here = Impl::presence(inputs);
  Flow flow = impl_->flow_of(inputs, false);
  if (!flow.has("mask")) add_positions(flow, mask_BS);  // one path for padded and unpadded batches
  std::vector<Tensor> chosen;
  for (int64_t step = 0; step < steps; ++step) {
    const Flow out = impl_->executor.forward(std::move(flow), context, here, here);
    chosen.push_back(out["logits"].select(1, -1).argmax(1).unsqueeze(1));
    flow = Flow{{"input_ids", chosen.back()}};
    flow.set("positions", mask_BS.sum(1).unsqueeze(1));
    mask_BS = at::cat({mask_BS, mask_BS.new_ones({rows, 1})}, 1);
    flow.set("mask", mask_BS.ne(0).unsqueeze(1).unsqueeze(1));
    here.image = false;  // images were seen with the prompt
  }
  return at::cat(chosen, 1);
}

void VerifyModel::clear_gradients() { impl_->executor.grads().clear(); }
double VerifyModel::gradient_norm() { return std::sqrt(impl_->executor.grads().local_sum_of_squares()); }
void VerifyModel::update(double learning_rate, double divisor) { impl_->adamw.step(learning_rate, divisor); }

int64_t count_targets(const Tensor& labels) {
  return labels.narrow(1, 1, labels.size(1) - 1).ne(-100).sum().item<int64_t>();
}

}  // namespace lockstep
