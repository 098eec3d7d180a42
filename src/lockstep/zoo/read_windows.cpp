// Which layers look back a few tokens only.
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/zoo/read_text_config.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const HfConfig& config, const std::string& what) {
  throw checkpoint_error(fmt::format("{}: {}", config.where(), what),
                         "a model computed with other windows than it was trained with would be wrong");
}

/// 0: written as null.
int64_t window_of(const HfConfig& config, int64_t otherwise) {
  const Json& json = config.json();
  if (json.is_object() && json.contains("sliding_window") && json["sliding_window"].is_null()) return 0;
  return config.size("sliding_window", otherwise, {.most = kMaxPositions});
}

/// layer_types, one for each layer; empty where none are said. True: it slides.
std::vector<bool> kinds_of(const HfConfig& config, int64_t layers) {
  const auto kinds = config.texts("layer_types");
  if (kinds.empty()) return {};
  if (static_cast<int64_t>(kinds.size()) != layers) {
    refuse(config,
           fmt::format("layer_types: expected one for each of num_hidden_layers {}, found {}", layers, kinds.size()));
  }
  std::vector<bool> slides;
  for (const auto& kind : kinds) {
    if (kind != "full_attention" && kind != "sliding_attention") {
      refuse(config, fmt::format("layer_types: expected full_attention or sliding_attention, found \"{}\"", kind));
    }
    slides.push_back(kind == "sliding_attention");
  }
  return slides;
}

}  // namespace

std::vector<int64_t> read_windows(const HfConfig& config, const TextDefaults& defaults, int64_t layers) {
  const bool by_layer = defaults.sliding_window_flag, always = defaults.sliding_window;
  const auto said = kinds_of(config, layers);
  const int64_t window = always || (by_layer && config.flag("use_sliding_window", false))
                             ? window_of(config, defaults.window)
                             : int64_t{0};
  std::vector<bool> slides(static_cast<size_t>(layers), window > 0);
  if (by_layer && window > 0) {
    const int64_t first = config.integer("max_window_layers", defaults.first_window_layer);
    for (int64_t i = 0; i < std::min(first, layers); ++i) slides[static_cast<size_t>(i)] = false;
  }
  if (!said.empty() && said != slides) {
    // By layer they have the last word; where the model_type knows none, transformers would pass them over in silence.
    if (!by_layer) {
      refuse(config,
             fmt::format("layer_types: expected all {}, as transformers computes every layer of this model_type",
                         window > 0 ? "sliding_attention" : "full_attention"));
    }
    if (window == 0) {
      refuse(config,
             "layer_types names sliding_attention, and there is no window: expected use_sliding_window true and a "
             "number for sliding_window");
    }
    slides = said;
  }
  if (std::ranges::find(slides, true) == slides.end()) return {};
  std::vector<int64_t> windows;
  for (const bool slid : slides) windows.push_back(slid ? window : 0);
  return windows;
}

}  // namespace lockstep
