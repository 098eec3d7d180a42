// Dynamic loss scaling for float16: gradients that overflow skip the update and lower the scale.
//
// Example:
//   if (scale.update(overflow)) adamw.step(lr, scale_used / clip);
#pragma once

#include "lockstep/state/trainer_state.h"

namespace lockstep {

/// Source: DeepSpeed 0.19 runtime/fp16/loss_scaler.py DynamicLossScaler (initial 2^16, window 1000, hysteresis 2, least
/// 1).
class LossScale {
 public:
  /// Not dynamic: the scale is 1 for ever, and an overflow is the caller's to judge.
  explicit LossScale(bool dynamic) : dynamic_(dynamic) {
    if (!dynamic) state_.scale = 1.0;
  }

  double value() const { return state_.scale; }
  bool dynamic() const { return dynamic_; }
  /// After the gradients of a step are known. Returns whether the step may be taken. Throws Error(kNumerics) when they
  /// overflow at the least scale.
  bool update(bool overflow);

  const LossScaleState& state() const { return state_; }
  void restore(const LossScaleState& state) {
    if (dynamic_) state_ = state;
  }

 private:
  bool dynamic_;
  LossScaleState state_;
};

}  // namespace lockstep
