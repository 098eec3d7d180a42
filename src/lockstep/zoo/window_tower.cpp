#include "lockstep/zoo/window_tower.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/projector.h"
#include "lockstep/model/layers/window_layout.h"
#include "lockstep/zoo/config_keys.h"

namespace lockstep {
namespace {

/// One half of the head's pairs turns with the row, the other with the column.
RopeConfig vision_rope(const HfConfig& config, int64_t head_dim) {
  const HfConfig rope = config.at("rope_parameters");
  const std::string type = rope.text("rope_type", rope.text("type", "axial"));
  if (type != "axial" && type != "default") {  // the older name, which transformers 5.23 reads as the newer one
    throw checkpoint_error(fmt::format("{}: rope_type: expected axial or default, found \"{}\"", rope.where(), type));
  }
  const auto theta = static_cast<float>(rope.positive("rope_theta", 10000.0));
  const int64_t half = head_dim / 2;
  RopeConfig made{.inverse_frequencies = {}, .sections = {half / 2, half / 2}};
  for (int axis = 0; axis < 2; ++axis) {
    for (int64_t i = 0; i < half; i += 2) {  // in float32, as the model was trained with
      made.inverse_frequencies.push_back(1.0F / std::pow(theta, static_cast<float>(i) / static_cast<float>(half)));
    }
  }
  return made;
}

void check_vision(const HfConfig& config, const WindowVisionConfig& vision) {
  const auto expect = [&](bool holds, const char* key, const std::string& expected, int64_t found) {
    if (holds) return;
    throw checkpoint_error(fmt::format("{}: {}: expected {}, found {}", config.where(), key, expected, found));
  };
  expect(vision.hidden % vision.heads == 0, "hidden_size", fmt::format("a multiple of num_heads {}", vision.heads),
         vision.hidden);
  const int64_t head = vision.hidden / vision.heads;
  expect(head % 4 == 0, "hidden_size / num_heads", "a multiple of 4 (pairs of rows and of columns)", head);
  expect(vision.channels == 3, "in_channels", "3", vision.channels);
  expect(vision.window > 0, "window_size", fmt::format("at least {} (one token)", vision.patch * vision.merge),
         config.integer("window_size", 112));
  for (const int64_t layer : vision.whole_frame_layers) {
    expect(layer >= 0 && layer < vision.layers, "fullatt_block_indexes", fmt::format("0 to {}", vision.layers - 1),
           layer);
  }
}

}  // namespace

WindowVisionConfig read_window_vision(const HfConfig& config) {
  WindowVisionConfig vision;
  vision.hidden = config.size("hidden_size", 3584);
  vision.mlp = config.size("intermediate_size", 3420);
  vision.layers = config.size("depth", 32, {.most = kMaxLayers});
  vision.heads = config.size("num_heads", 16);
  vision.channels = config.integer("in_channels", config.integer("in_chans", 3));
  vision.text_hidden = config.size("out_hidden_size", 3584);
  vision.patch = config.size("patch_size", 14, {.most = 1024});
  vision.temporal_patch = config.size("temporal_patch_size", 2, {.most = 1024});
  vision.merge = config.size("spatial_merge_size", 2, {.most = 1024});
  vision.activation = read_activation(config, "hidden_act", "silu");
  vision.whole_frame_layers = config.has("fullatt_block_indexes") ? config.integers("fullatt_block_indexes")
                                                                  : std::vector<int64_t>{7, 15, 23, 31};
  vision.window = config.size("window_size", 112) / vision.merge / vision.patch;
  check_vision(config, vision);
  vision.rope = vision_rope(config, vision.hidden / vision.heads);
  return vision;
}

void add_window_tower(Model& model, const std::string& name, const WindowVisionConfig& vision, int64_t text_hidden,
                      const std::string& where) {
  if (vision.text_hidden != text_hidden) {
    throw checkpoint_error(
        fmt::format("{}: vision_config.out_hidden_size: expected {} (hidden_size of the text), found {}", where,
                    text_hidden, vision.text_hidden));
  }
  model.add<WindowLayout>(name + ".layout", vision.merge, vision.window, vision.rope);
  model.add<PatchRows>(name + ".patch_embed", vision);
  for (int64_t i = 0; i < vision.layers; ++i) {
    const bool whole = std::ranges::find(vision.whole_frame_layers, i) != vision.whole_frame_layers.end();
    model.add<WindowVisionLayer>(fmt::format("{}.blocks.{}", name, i), vision, whole);
  }
  model.add<PatchMerger>(name + ".merger", vision);
  model.add<MergeMedia>("merge_media");
}

}  // namespace lockstep
