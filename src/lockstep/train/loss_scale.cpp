#include "lockstep/train/loss_scale.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

LossScale::LossScale(bool scales, const LossScaling& how) : scales_(scales), how_(how) {
  state_.scale = !scales ? 1 : how.fixed > 0 ? how.fixed : how.initial;
  state_.hysteresis = how.hysteresis;
}

bool LossScale::update(bool overflow) {
  if (!moves()) return !overflow;
  if (overflow) {
    if (state_.hysteresis > 1) {
      --state_.hysteresis;
    } else if (state_.scale == how_.least) {
      throw Error(ExitCode::kNumerics,
                  fmt::format("float16 gradients overflow at loss scale {:g}, the least there is", how_.least),
                  "use --torch_dtype bfloat16, or a smaller --learning_rate");
    } else {
      state_.scale = std::max(state_.scale / 2, how_.least);
    }
    state_.last_overflow = state_.steps;
  } else {
    const int64_t stable = state_.steps - state_.last_overflow - 1;
    const bool grows = stable > 0 && stable % how_.window == 0;
    if (grows) state_.scale *= 2;
    if (grows || how_.refills) state_.hysteresis = how_.hysteresis;
  }
  ++state_.steps;
  return !overflow;
}

}  // namespace lockstep
