// Tests only: kinds of adapters over a model, by name.
//
// Example:
//   options.plan.adapters = adapters_over(model, {.lora = {.r = 2, .dora = true, .targets = {.names = {"all-linear"}}}});
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/exec/test_job.h"
#include "lockstep/plan/adapters.h"
#include "lockstep/plan/quantisation.h"

namespace lockstep::test {

struct AdapterKind {
  std::string name = {};
  LoraConfig lora = {};
  std::set<Component> components = {}, whole = {};
  double loraplus_ratio = 1;
  QuantChoice codes = {};  // of a kind: what is frozen is kept so
};

inline std::shared_ptr<const Quantisation> codes_of(const Model& model, const AdapterKind& kind) {
  if (kind.codes.format.kind == QuantKind::kNone) return nullptr;
  return std::make_shared<const Quantisation>(choose_quantisation(model, naming_of_adapters(model, ""), kind.codes));
}

inline std::shared_ptr<const AdapterLayout> adapters_over(const Model& model, const AdapterKind& kind) {
  AdapterLayout layout = choose_adapters(model, naming_of_adapters(model, ""),
                                         {.config = kind.lora, .components = kind.components, .whole = kind.whole});
  layout.loraplus_ratio = kind.loraplus_ratio;
  return std::make_shared<const AdapterLayout>(std::move(layout));
}

inline ModuleNames named(std::vector<std::string> names) { return {.names = std::move(names), .regex = {}}; }

/// Everything that is computed differently.
inline std::vector<AdapterKind> adapter_kinds() {
  const std::string patches = "embeddings.patch_embedding", qwen_patches = "patch_embed.proj";
  const std::vector<std::pair<std::string, int64_t>> uneven{{"k_proj", 1}, {"v_proj", 5}};
  return {
      {"lora", {.r = 3, .alpha = 6, .targets = named({"all-linear"}), .rank_pattern = uneven}},
      {"lora with a head and a table that drops",
       {.r = 2, .alpha = 4, .dropout = 0.3, .targets = named({"all-linear", "lm_head", "all-embedding"})}},
      {"dora", {.r = 2, .alpha = 4, .dora = true, .targets = named({"q_proj", "v_proj", "down_proj", "embed_tokens"})}},
      {"dora that drops",
       {.r = 2, .alpha = 4, .dropout = 0.3, .rslora = true, .dora = true, .targets = named({"all-linear"})}},
      {"biases",
       {.r = 2, .alpha = 4, .lora_bias = true, .bias = "all", .targets = named({"q_proj", "gate_proj", "o_proj"})}},
      {"whole modules",
       {.r = 2,
        .alpha = 4,
        .bias = "lora_only",
        .targets = named({"q_proj", "up_proj"}),
        .modules_to_save = {"embed_tokens", "lm_head", "norm"}}},
      {"lora_llm",
       {.r = 2, .alpha = 4, .targets = named({"all-linear"})},
       {Component::kLlm},
       {Component::kVision, Component::kProjector},
       4.0},
      {.name = "nf4 with nested scales",
       .lora = {.r = 2, .alpha = 4, .targets = named({"all-linear"})},
       .codes = {.format = {.kind = QuantKind::kNf4, .nested = true, .dtype = Dtype::kBF16}, .skip = {"none"}}},
      {.name = "fp4 of some parts",
       .lora = {.r = 2, .alpha = 4, .dropout = 0.3, .dora = true, .targets = named({"q_proj", "down_proj"})},
       .codes = {.format = {.kind = QuantKind::kFp4}, .skip = {"k_proj", "layers.1"}}},
      {.name = "int8",
       .lora = {.r = 2, .alpha = 4, .targets = named({"v_proj", "up_proj"}), .modules_to_save = {"lm_head"}},
       .codes = {.format = {.kind = QuantKind::kInt8}}}};
}

}  // namespace lockstep::test
