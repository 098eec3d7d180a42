#include <filesystem>
#include <fstream>
#include <memory>

#include "targets.h"
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/data/log_mel.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/quantised_tensor.h"
#include "lockstep/model/weights.h"
#include "lockstep/plan/adapters.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/plan/plan.h"
#include "lockstep/tensor/tensor.h"
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

const Model& small_model() {
  static const Model model = [] {
    const char* const text =
        R"({"model_type": "qwen2", "vocab_size": 100, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 3,
            "num_attention_heads": 2, "num_key_value_heads": 1})";
    const HfConfig read(parse_json(text, "config.json"), "config.json");
    return family_of(read).build(read);
  }();
  return model;
}

void device_map(std::string_view bytes) {
  const DeviceMap map = read_device_map(small_model(), "{" + std::string(bytes), 4);
  if (map.devices.size() != small_model().blocks.size()) std::abort();
}

/// What it adapts, and the plan of a run that trains it.
void adapter_config(std::string_view bytes) {
  const LoraConfig config = LoraConfig::from_json(parse_json(bytes, "adapter_config.json"), "adapter_config.json");
  (void)LoraConfig::from_json(config.to_json(), "what was written of it");
  PlanOptions options;
  options.adapters = std::make_shared<const AdapterLayout>(
      choose_adapters(small_model(), naming_of_adapters(small_model(), ""), {.config = config}));
  if (make_plan(small_model(), options).num_trainable() <= 0) std::abort();
}

/// A file of weights, codes among them: all of it is read as values and as bytes.
void codes(std::string_view bytes) {
  const std::filesystem::path file = std::filesystem::path(fresh_folder()) / "model.safetensors";
  std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const Weights weights = Weights::open(file);
  for (const TensorSpec& spec : weights.specs()) {
    (void)weights.read(spec.name);
    const QuantisedTensor* matrix = weights.quantised(spec.name);
    if (matrix == nullptr) continue;
    std::vector<uint8_t> kept(static_cast<size_t>(QuantLayout::of(matrix->format, spec.shape).bytes));
    weights.read_quantised(spec.name, 0, kept);
  }
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
  return {{"config", config},
          {"device_map", device_map},
          {"audio_config", audio_config},
          {"adapter_config", adapter_config},
          {"codes", codes}};
}

}  // namespace lockstep::fuzz
