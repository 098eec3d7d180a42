// What a processor makes of a sample, and what a collator makes of many: the tensors that enter a model.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/modality.h"
#include "lockstep/data/sample.h"

namespace lockstep {

inline constexpr int32_t kNotLearnt = -100;  // the label of what is not learnt

/// What a tower takes as one, prepared: float32 values, row-major, in `shape`. A batch lays the blocks of a slot behind
/// one another along the first dimension (LLaVA: [1, 3, H, W]; Qwen2.5-VL: [patches, values of a patch]): "pixel" gives
/// pixel_values and pixel_index.
struct MediaBlock {
  Modality modality = Modality::kImage;
  std::string slot = "pixel";
  std::vector<int64_t> shape = {};
  std::vector<float> values = {};
  std::map<std::string, std::vector<int64_t>> facts =
      {};  // what a tower must know besides, by slot: a batch has [media, n]
  double step_seconds =
      0;                // of a video: from one group of frames, that a tower takes as one, to the next; 0: a picture
  int64_t columns = 0;  // of a part of a picture: how many stand beside one another in its grid; 0: a whole
  std::vector<int32_t> places = {};  // in input_ids, rising: they receive the block's features
};

/// The slots of a batch that hold blocks of a slot, and the flat places of what they give.
inline std::string values_slot(const std::string& slot) { return slot + "_values"; }
inline std::string index_slot(const std::string& slot) { return slot + "_index"; }

/// One sample, ready for a model. labels[i] is the target *at* position i before the shift by one; -100 is ignored.
struct Features {
  std::vector<int32_t> input_ids = {};
  std::vector<int32_t> labels = {};        // empty for prompts
  std::vector<float> weights = {};         // of labels in the loss, where some count more than others; else empty
  std::vector<MediaBlock> media = {};      // in the order of their places, where they do not interleave
  std::vector<int32_t> positions = {};     // [axes, tokens], one axis behind the other; empty: 0, 1, 2, …
  std::optional<SpeechSteps> speech = {};  // what a talker does with it
  Sample sample = {};                      // where it came from: metadata travels beside the labels (incident I1)
};

/// Tokens that media fill.
int64_t count_places(const std::vector<MediaBlock>& media);
/// By token: the block that fills it, -1 for text. Throws InternalError for a place outside or filled twice.
std::vector<int> filled_by(const std::vector<MediaBlock>& media, size_t tokens);

}  // namespace lockstep
