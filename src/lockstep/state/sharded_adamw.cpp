#include "lockstep/state/sharded_adamw.h"

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>

#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

ShardedAdamW::ShardedAdamW(ParamStore& store, Communicator& comm, AdamWOptions options)
    : store_(store), comm_(comm), options_(std::move(options)) {}

double ShardedAdamW::rate_ratio(const Unit& unit) const {
  const auto found = options_.rate_ratios.find(unit.component);
  return found == options_.rate_ratios.end() ? 1.0 : found->second;
}

double ShardedAdamW::decay_of(const UpdateRange& range) const { return range.decays ? options_.weight_decay : 0.0; }

void ShardedAdamW::update(int unit, const Tensor& grad, double learning_rate, double divisor) {
  const Unit& planned = store_.plan().units[static_cast<size_t>(unit)];
  UnitState& state = store_.unit(unit);
  ++state.updates;
  for (const auto& piece : state.optimizer) {
    const auto& device = store_.devices().at(piece.device);
    const OnDevice scope(device);
    const auto begin = piece.range.begin - state.optimised.begin;
    const Tensor mine = move_to(grad.narrow(0, begin, piece.range.size()), device);
    const Update how{.learning_rate = learning_rate, .divisor = divisor, .updates = state.updates};
    const Tensor weights = store_.weights_of(unit, piece);
    if (gpu::has_kernels(piece.master) && (!weights.defined() || gpu::meet(weights, piece.master))) {
      update_on_gpu(planned, piece, mine, weights, how);
    } else {
      update_piece(planned, piece, mine, how);
      store_.refresh(unit, piece);
    }
  }
}

/// Masters, moments and weights in one pass.
void ShardedAdamW::update_on_gpu(const Unit& planned, const OptimizerState& piece, const Tensor& grad,
                                 const Tensor& weights, const Update& update) const {
  for (const auto& range : planned.updates) {
    const Range mine = shifted(intersect({range.begin, range.end}, piece.range), -piece.range.begin);
    if (mine.empty()) continue;
    const auto part = [&](const Tensor& t) { return t.defined() ? t.narrow(0, mine.begin, mine.size()) : t; };
    gpu::adamw(part(weights), part(piece.master), part(grad), part(piece.exp_avg), part(piece.exp_avg_sq),
               {.rate = update.learning_rate * range.rate,
                .decay = decay_of(range),
                .beta1 = options_.beta1,
                .beta2 = options_.beta2,
                .epsilon = options_.epsilon,
                .divisor = update.divisor,
                .updates = update.updates});
  }
}

void ShardedAdamW::update_piece(const Unit& planned, const OptimizerState& piece, const Tensor& grad,
                                const Update& update) const {
  const std::string& device = store_.devices().at(piece.device)->torch_device();
  std::optional<Tensor> scale;
  if (update.divisor != 1.0) scale = full({}, update.divisor, Dtype::kF32, device);
  const Tensor count = full({}, static_cast<double>(update.updates), Dtype::kF32, device);
  for (const auto& range : planned.updates) {
    const Range mine = shifted(intersect({range.begin, range.end}, piece.range), -piece.range.begin);
    if (mine.empty() || grad.is_meta()) continue;
    const auto part = [&](const Tensor& t) { return std::vector<Tensor>{t.narrow(0, mine.begin, mine.size())}; };
    at::_fused_adamw_(part(piece.master), part(grad), part(piece.exp_avg), part(piece.exp_avg_sq), {}, {count},
                      update.learning_rate * range.rate, options_.beta1, options_.beta2, decay_of(range),
                      options_.epsilon, /*amsgrad=*/false,
                      /*maximize=*/false, scale);
  }
}

void ShardedAdamW::step(double learning_rate, double divisor) {
  const at::NoGradGuard no_grad;
  const Plan& plan = store_.plan();
  const bool replicated = !plan.options.zero.shards_optimizer() && plan.options.world > 1;
  std::deque<Pending> publishing;
  if (plan.shares()) comm_.barrier("shared weights, read");
  for (int unit = 0; unit < store_.num_units(); ++unit) {
    UnitState& state = store_.unit(unit);
    if (!state.touched) continue;
    const Unit& planned = plan.units[static_cast<size_t>(unit)];
    {
      const OnDevice scope(store_.devices().at(planned.device));
      memory_stands_at(MemoryPhase::kStep, planned.name);  // an update that takes no memory is a moment too
    }
    Tensor grad = state.grad;
    if (replicated) {
      grad = store_.pool(planned.device).take(planned.padded, Dtype::kF32, MemoryUse::kGathered);
      comm_.all_gather(grad, state.grad, planned.name + " grad gather").wait();
    }
    update(unit, grad, learning_rate * rate_ratio(planned), divisor);
    store_.publish(comm_, unit, publishing);
  }
  for (auto& pending : publishing) pending.wait();
  if (plan.shares()) comm_.barrier(ParamStore::kWritten);
}

}  // namespace lockstep
