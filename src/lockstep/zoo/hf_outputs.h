// Our intermediates under the names that recordings of transformers use, and recordings brought into our form.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/zoo/hf_inputs.h"

namespace lockstep {

/// Context::tap's names and values, in order -> inputs_embeds, layer_i, layer0_attn_out, vision_layer_i (also
/// vision_block_i), last_hidden_state and what a family taps by name. Decoder layers are those that tap their
/// attention; other layers are the tower's.
HfInputs outputs_of_taps(const std::vector<std::pair<std::string, Tensor>>& taps);

/// A recording whose tower ran once for images and once for videos ("merger", "merger#1", "image_features",
/// "video_features", "image_window_index", …), as one run over all media, images first. What `inputs`
/// show to be slices filled up to the longest ("tgt_sizes") is patches behind one another.
HfInputs joined_outputs(HfInputs recorded, const HfInputs& inputs);

}  // namespace lockstep
