// Rotary positions of more than one dimension: height and width of a patch; time, height and width of a token.
#pragma once

#include <utility>

#include "lockstep/model/layers/text_config.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// positions [A, .., T] i64 -> cos, sin [.., T, H] f32: the frequencies of section i turn with the position on axis
/// i mod A. rope.sections sum up to H / 2. Source: transformers 5.23 models/qwen2_5_vl (mrope_section).
std::pair<Tensor, Tensor> axis_rope(const Tensor& positions, const RopeConfig& rope);

}  // namespace lockstep
