// What a processor makes of a sample, and what a collator makes of many: the tensors that enter a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/data/sample.h"

namespace lockstep {

/// An image or a video prepared for a tower: float32 values, row-major, in `shape`. A batch lays blocks behind one
/// another along the first dimension (LLaVA: [1, 3, H, W]; Qwen2.5-VL: [patches, values of a patch]).
struct PixelBlock {
  std::vector<int64_t> shape;
  std::vector<float> values;
  std::map<std::string, std::vector<int64_t>> facts;  // what a tower must know besides, by slot: a batch has [media, n]
  double step_seconds =
      0;  // of a video: from one group of frames, that a tower takes as one, to the next; 0: a picture
};

/// One sample, ready for a model. labels[i] is the target *at* position i before the shift by one; -100 is ignored.
struct Features {
  std::vector<int32_t> input_ids;
  std::vector<int32_t> labels;       // empty for prompts
  std::vector<PixelBlock> media;     // in the order of their placeholders in input_ids
  std::vector<int32_t> media_index;  // the placeholders: places in input_ids that receive the media's features
  std::vector<int32_t> positions;    // [axes, tokens], one axis behind the other; empty: 0, 1, 2, …
  Sample sample;                     // where it came from: metadata travels beside the labels (incident I1)
};

}  // namespace lockstep
