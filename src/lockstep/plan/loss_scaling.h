// How the loss is scaled where float16 is computed, as "fp16" of a DeepSpeed JSON says it.
#pragma once

#include <cstdint>

namespace lockstep {

/// Source: deepspeed 0.19.6 runtime/precision_config.py DeepSpeedFP16Config, and its defaults.
struct LossScaling {
  double fixed = 0;  // loss_scale; 0: it follows overflows
  double initial = 65536, least = 1;
  int64_t window = 1000;   // steps without overflow until it is doubled
  int64_t hysteresis = 2;  // overflows until it is halved
  bool refills = false;    // these are counted anew behind each step without overflow, not behind a window alone

  bool operator==(const LossScaling&) const = default;
};

}  // namespace lockstep
