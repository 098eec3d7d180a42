#include "lockstep/zoo/straight_run.h"

#include <algorithm>
#include <span>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
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
      for (const auto& source : spec.sources) parts.push_back(weights.read(keys.on_disk(source.key)));
      Tensor value = to_dtype(at::cat(parts, 0), dtype).clone().set_requires_grad(true);
      owned_.push_back({spec, value});
      mine.push_back(std::move(value));
    }
  }
}

Flow StraightRun::forward(Flow flow, const Context& context) const {
  const bool image = flow.has("pixel_values");
  for (size_t i = 0; i < model_.blocks.size(); ++i) {
    const Block& block = *model_.blocks[i];
    if (block.modality() == Modality::kImage && !image) continue;
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

Tensor StraightRun::greedy(const Batch& prompts, int64_t count) const {
  const at::NoGradGuard quiet;
  Flow flow = prompts.flow;
  const int64_t rows = flow["input_ids"].size(0), width = flow["input_ids"].size(1);
  KvCache cache(model_.dims.layers, width + 4);  // grows on the way
  Context context{.logits = LogitsWanted::kLast, .cache = &cache};
  Tensor seen = flow["mask"].select(2, width - 1).squeeze(1);
  const Tensor next_positions = from_values(std::span<const int64_t>(prompts.next_positions), {rows, 1});
  std::vector<Tensor> made;
  for (int64_t step = 0; step < count; ++step) {
    const Tensor next = forward(std::move(flow), context)["logits"].argmax(-1);
    made.push_back(next);
    seen = at::cat({seen, at::ones({rows, 1}, seen.options())}, 1);
    flow = {
        {"input_ids", next}, {"positions", next_positions.add(step)}, {"mask", seen.view({rows, 1, 1, seen.size(1)})}};
  }
  return at::cat(made, 1);
}

}  // namespace lockstep
