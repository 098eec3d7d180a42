// The tower with window attention that Qwen's families share, from their config.json to its blocks.
//
// Example:
//   add_window_tower(model, "visual", read_window_vision(config.at("vision_config")));   // pixel_values -> media
#pragma once

#include <string>

#include "lockstep/model/hf_config.h"
#include "lockstep/model/layers/window_vision.h"
#include "lockstep/model/model.h"

namespace lockstep {

/// Of vision_config. Throws UserError(kCheckpoint) naming the key, what is expected and what was found.
WindowVisionConfig read_window_vision(const HfConfig& config);

/// The layout of the patches, the tower and the merger, from pixel_values to media, and where these go in hidden. `text_hidden`:
/// of the decoder, which the merger must fit; throws UserError(kCheckpoint) naming `where`.
void add_window_tower(Model& model, const std::string& name, const WindowVisionConfig& vision, int64_t text_hidden,
                      const std::string& where);

}  // namespace lockstep
