#include "lockstep/train/loss_scale.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kWindow = 1000, kHysteresis = 2;
constexpr double kLeast = 1.0;

}  // namespace

bool LossScale::update(bool overflow) {
  if (!dynamic_) return !overflow;
  if (overflow) {
    if (state_.scale <= kLeast) {
      throw Error(ExitCode::kNumerics, "float16 gradients overflow at loss scale 1, the least there is",
                  "use --torch_dtype bfloat16, or a smaller --learning_rate");
    }
    if (state_.hysteresis == 1) {
      state_.scale = std::max(state_.scale / 2, kLeast);
    } else {
      --state_.hysteresis;
    }
    state_.last_overflow = state_.steps;
  } else if ((state_.steps - state_.last_overflow) % kWindow == 0) {
    state_.hysteresis = kHysteresis;
    state_.scale *= 2;
  }
  ++state_.steps;
  return !overflow;
}

}  // namespace lockstep
