// AdamW on flat shards, fused, with gradient clipping and unscaling folded into the same pass.
// Source: torch.optim.AdamW (decoupled weight decay, bias correction).
#pragma once

#include <map>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
  std::map<Component, double> rate_ratios;  // a component's learning rate over the run's; absent: 1
};

class ShardedAdamW {
 public:
  ShardedAdamW(ParamStore& store, Communicator& comm, AdamWOptions options);

  /// Updates every touched unit with gradient / divisor (divisor = loss scale / clip factor), then makes the new
  /// weights what the next gather sends (ZeRO-3) or what stands in `full` (ZeRO-0: computed, ZeRO-1/2: gathered).
  /// A unit's rate is `learning_rate` times the ratio of its component. Collective.
  void step(double learning_rate, double divisor);

 private:
  struct Update {
    double learning_rate = 0, divisor = 1;
    int64_t updates = 0;
  };
  double rate_ratio(const Unit& unit) const;
  double decay_of(const UpdateRange& range) const;
  void update(int unit, const Tensor& grad, double learning_rate, double divisor);
  void update_piece(const Unit& planned, const OptimizerState& piece, const Tensor& grad, const Update& update) const;
  void update_on_gpu(const Unit& planned, const OptimizerState& piece, const Tensor& grad, const Tensor& weights,
                     const Update& update) const;

  ParamStore& store_;
  Communicator& comm_;
  AdamWOptions options_;
};

}  // namespace lockstep
