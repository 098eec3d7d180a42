// Positions of three axes (time, height, width), as Qwen2-VL and its descendants place tokens and media.
#pragma once

#include <vector>

#include "lockstep/data/features.h"

namespace lockstep {

struct MropeRules {
  int64_t merge = 2;             // patches of a token's edge
  double tokens_per_second = 2;  // how far a second of a video moves the first axis
};

/// Sets features.positions [3, tokens]: text counts on all axes alike; a medium begins where the text before it ends
/// and spreads over frame, row and column of its "grid_thw"; text goes on behind the medium's larger edge. Rows without
/// media are left alone. Source: transformers 5.23 Qwen2_5_VLModel.get_rope_index.
void set_mrope_positions(Features& features, const MropeRules& rules);

}  // namespace lockstep
