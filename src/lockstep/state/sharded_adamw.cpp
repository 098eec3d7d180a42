#include "lockstep/state/sharded_adamw.h"

#include <deque>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>

#include "lockstep/tensor/make.h"

namespace lockstep {

ShardedAdamW::ShardedAdamW(ParamStore& store, Communicator& comm, AdamWOptions options)
    : store_(store), comm_(comm), options_(options) {}

double ShardedAdamW::rate_ratio(const Unit& unit) const {
  const auto found = options_.rate_ratios.find(unit.component);
  return found == options_.rate_ratios.end() ? 1.0 : found->second;
}

void ShardedAdamW::update(int unit, const Tensor& grad, double learning_rate, double divisor) {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  UnitState& state = store_.unit(unit);
  ++state.updates;
  std::optional<Tensor> scale;
  if (divisor != 1.0) scale = full({}, divisor, Dtype::kF32, store_.pool().device());
  const Tensor count = full({}, static_cast<double>(state.updates), Dtype::kF32, store_.pool().device());
  const auto update_range = [&](Range range, double weight_decay) {
    const Range mine = shifted(intersect(range, state.optimised), -state.optimised.begin);
    if (mine.empty()) return;
    const auto part = [&](const Tensor& t) { return std::vector<Tensor>{t.narrow(0, mine.begin, mine.size())}; };
    at::_fused_adamw_(part(state.master), part(grad), part(state.exp_avg), part(state.exp_avg_sq), {}, {count},
                      learning_rate, options_.beta1, options_.beta2, weight_decay, options_.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false, scale);
  };
  update_range({0, planned.decay_numel}, options_.weight_decay);
  update_range({planned.decay_numel, planned.padded}, 0.0);
}

void ShardedAdamW::step(double learning_rate, double divisor) {
  const at::NoGradGuard no_grad;
  const Plan& plan = store_.plan();
  const bool replicated = !plan.options.zero.shards_optimizer() && plan.options.world > 1;
  const bool publishes = plan.options.zero.shards_optimizer() && !plan.gathers() && plan.options.world > 1;
  std::deque<Pending> publishing;
  for (int unit = 0; unit < store_.num_units(); ++unit) {
    UnitState& state = store_.unit(unit);
    if (!state.touched) continue;
    const Unit& planned = plan.units[static_cast<size_t>(unit)];
    Tensor grad = state.grad;
    if (replicated) {
      grad = store_.pool().take(planned.padded, Dtype::kF32);
      comm_.all_gather(grad, state.grad, planned.name + " grad gather").wait();
    }
    update(unit, grad, learning_rate * rate_ratio(planned), divisor);
    store_.refresh(unit);
    if (publishes) {
      publishing.push_back(comm_.all_gather(state.full, state.shard, planned.name + " publish"));
      if (publishing.size() > 2) {
        publishing.front().wait();
        publishing.pop_front();
      }
    }
  }
  for (auto& pending : publishing) pending.wait();
}

}  // namespace lockstep
