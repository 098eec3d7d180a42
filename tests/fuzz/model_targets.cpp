#include "targets.h"
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/log_mel.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/zoo/registry.h"

namespace lockstep::fuzz {
namespace {

/// A family's model of a config, and what a plan makes of it.
void config(std::string_view bytes) {
  const HfConfig read(parse_json(bytes, "config.json"), "config.json");
  const Family& family = family_of(read);
  const Model model = family.build(read);
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) {
      if (param.numel() <= 0) std::abort();
    }
  }
  if (family.typical_row) (void)family.typical_row(read, 64);
}

void device_map(std::string_view bytes) {
  static const Model model = [] {
    const char* const text =
        R"({"model_type": "qwen2", "vocab_size": 100, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 3,
            "num_attention_heads": 2, "num_key_value_heads": 1})";
    const HfConfig read(parse_json(text, "config.json"), "config.json");
    return family_of(read).build(read);
  }();
  const DeviceMap map = read_device_map(model, "{" + std::string(bytes), 4);
  if (map.devices.size() != model.blocks.size()) std::abort();
}

void audio_config(std::string_view bytes) {
  const LogMelConfig config =
      read_log_mel_config(parse_json(bytes, "preprocessor_config.json"), "preprocessor_config.json");
  const LogMel mel = LogMelMaker(config).make(std::vector<float>(300, 0.5F), "clip");
  if (mel.values.size() != static_cast<size_t>(mel.bins * mel.frames)) std::abort();
  for (const float value : mel.values) {
    if (!(value >= -2 && value < 100)) std::abort();
  }
}

}  // namespace

std::vector<Target> model_targets() {
  return {{"config", config}, {"device_map", device_map}, {"audio_config", audio_config}};
}

}  // namespace lockstep::fuzz
