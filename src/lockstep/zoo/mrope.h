// Positions of three axes (time, height, width), as Qwen2-VL and its descendants place tokens and media.
#pragma once

#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/zoo/read_text_config.h"

namespace lockstep {

/// A decoder of the Llama kind with such positions; mrope_section absent: 16, 24, 24. Throws UserError(kCheckpoint) unless the
/// sections are those of three axes and sum up to half a head.
TextConfig read_mrope_text(const HfConfig& part, const TextDefaults& defaults);

struct MropeRules {
  int64_t merge = 2;             // patches of a token's edge
  double tokens_per_second = 2;  // how far a second of a video moves the first axis
  bool behind_time =
      false;  // what follows a video stands behind its last moment too; else behind its larger edge alone
  bool seconds_first = false;  // (step * seconds) * tokens_per_second; else step * (seconds * tokens_per_second)
};

/// Sets features.positions [3, tokens]: text counts on all axes alike; a medium begins where the text before it ends and
/// spreads over frame, row and column of its "grid_thw"; text goes on behind it. Sound, which has no grid, counts as text does.
/// Rows without a grid are left alone.
///
/// A video whose first run of tokens is directly followed by sound's is woven with it: both begin at once, and what follows
/// stands behind the last run. Of the marks around, two in front share a position, and two behind.
/// Source: transformers 5.23 Qwen2_5_VLModel.get_rope_index, Qwen2_5OmniPreTrainedModelForConditionalGeneration.get_rope_index.
void set_mrope_positions(Features& features, const MropeRules& rules);

}  // namespace lockstep
