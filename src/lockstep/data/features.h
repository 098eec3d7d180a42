// What a processor makes of a sample, and what a collator makes of many: the tensors that enter a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/sample.h"

namespace lockstep {

/// An image prepared for a tower: float32 values, row-major, in `shape` (LLaVA: [3, H, W]).
struct PixelBlock {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

/// One sample, ready for a model. labels[i] is the target *at* position i before the shift by one; -100 is ignored.
struct Features {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;     // empty for prompts
  std::vector<PixelBlock> images;  // in the order of their placeholders in input_ids
  Sample sample;                   // where it came from: metadata travels beside the labels (incident I1)
};

}  // namespace lockstep
