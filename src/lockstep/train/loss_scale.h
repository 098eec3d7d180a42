// Loss scaling for float16: gradients that overflow skip the update and lower the scale.
//
// Example:
//   if (scale.update(overflow)) adamw.step(lr, scale_used / clip);
#pragma once

#include "lockstep/plan/loss_scaling.h"
#include "lockstep/state/trainer_state.h"

namespace lockstep {

/// Source: DeepSpeed 0.19.6 runtime/fp16/loss_scaler.py LossScaler, DynamicLossScaler.
class LossScale {
 public:
  /// Not `scales`: the scale is 1 for ever, and an overflow is the caller's to judge.
  explicit LossScale(bool scales, const LossScaling& how = {});

  double value() const { return state_.scale; }
  bool scales() const { return scales_; }
  /// After the gradients of a step are known. Returns whether the step may be taken. Throws Error(kNumerics) when they
  /// overflow at the least scale.
  bool update(bool overflow);

  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) {
    if (moves()) state_ = state;
  }

 private:
  bool moves() const { return scales_ && how_.fixed == 0; }

  bool scales_;
  LossScaling how_;
  LossScaleState state_;
};

}  // namespace lockstep
