// What is drawn of a run over its steps, under the tags that ms-swift and the Hugging Face Trainer use.
//
// Example:
//   for (const auto& [tag, value] : curve_points(event)) write(tag, value);
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/event.h"

namespace lockstep {

struct CurvePoints {
  int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;  // by tag: "train/loss", "eval/rouge_l"
};

/// Of StepDone, MemoryMeasured and EvalDone; of other events none.
CurvePoints curve_points(const Event& event);

}  // namespace lockstep
