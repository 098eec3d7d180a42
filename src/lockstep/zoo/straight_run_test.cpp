#include "lockstep/zoo/straight_run.h"

#include <algorithm>
#include <span>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/autograd.h>

#include "lockstep/base/error.h"
#include "lockstep/model/kv_cache.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

StraightRun::StraightRun(const Model& model, const Weights& weights, const KeyMap& keys, Dtype dtype) : model_(model) {
  for (const auto& block : model.blocks) {
    auto& mine = params_.emplace_back();
    for (const auto& spec : block->params()) {
      if (spec.tied) {
        const auto owner =
            std::find_if(owned_.begin(), owned_.end(), [&](const Owned& o) { return o.spec.sources == spec.sources; });
        check(owner != owned_.end(), "a tied parameter has an owner");
        mine.push_back(owner->value);
        continue;
      }
      std::vector<Tensor> parts;
      for (const auto& source : spec.sources) parts.push_back(keys.read(weights, source));
      Tensor value = to_dtype(at::cat(parts, 0), dtype).clone().set_requires_grad(true);
      owned_.push_back({spec, value});
      mine.push_back(std::move(value));
    }
  }
}

Flow StraightRun::forward(Flow flow, const Context& context) const {
  Modalities here = Modality::kText;
  if (flow.has("pixel_values")) here |= kPictures;
  if (flow.has("audio_values")) here |= Modality::kAudio;
  for (size_t i = 0; i < model_.blocks.size(); ++i) {
    const Block& block = *model_.blocks[i];
    if (!here.meets(block.runs_on())) continue;
    flow.put(block.forward(Params(block.params(), params_[i]), flow.pick(block.reads()), context));
  }
  return flow;
}

std::map<std::string, Tensor> StraightRun::gradients(const Tensor& loss) const {
  std::vector<Tensor> leaves;
  for (const auto& owned : owned_) leaves.push_back(owned.value);
  const auto grads = torch::autograd::grad({loss}, leaves, {}, false, false, /*allow_unused=*/true);
  std::map<std::string, Tensor> named;
  for (size_t i = 0; i < grads.size(); ++i) {
    int64_t row = 0;
    for (const auto& source : owned_[i].spec.sources) {
      if (grads[i].defined()) named[source.key] = grads[i].narrow(0, row, source.shape[0]);
      row += source.shape[0];
    }
  }
  return named;
}

Tensor StraightRun::greedy(const std::vector<Features>& prompts, int64_t count) const {
  const at::NoGradGuard quiet;
  const auto rows = static_cast<int64_t>(prompts.size());
  KvCache cache(model_.dims.layers, rows);
  std::vector<Tensor> first, made;
  std::vector<int64_t> positions;
  for (int64_t row = 0; row < rows; ++row) {
    const Batch alone = collate({prompts[static_cast<size_t>(row)]}, {});
    cache.open(row, alone.lengths[0] + 4);  // grows on the way
    first.push_back(forward(alone.flow, {.logits = LogitsWanted::kLast, .cache = &cache, .slot = row})["logits"]);
    cache.start(row);
    positions.push_back(alone.next_positions[0]);
  }
  const Tensor next_positions = from_values(std::span<const int64_t>(positions), {rows, 1});
  Tensor logits = at::cat(first, 0);
  for (int64_t step = 0; step < count; ++step) {
    made.push_back(logits.argmax(-1));
    const Flow flow{{"input_ids", made.back()}, {"positions", next_positions.add(step)}};
    logits = forward(flow, {.logits = LogitsWanted::kLast, .cache = &cache})["logits"];
  }
  return at::cat(made, 1);
}

}  // namespace lockstep
