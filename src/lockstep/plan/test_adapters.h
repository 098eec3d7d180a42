// Tests only: a small model with everything an adapter may meet: parts of fused matrices, parts that files hold as one, a patch
// kernel, a table, biases, a head that may be tied.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/model.h"
#include "lockstep/plan/adapters.h"
#include "lockstep/plan/plan.h"

namespace lockstep::test {

class OpenBlock final : public Block {
 public:
  OpenBlock(std::string name, Component component, Modalities runs_on, std::vector<std::string> in,
            std::vector<std::string> out)
      : Block(std::move(name), component, runs_on) {
    reads(std::move(in));
    writes(std::move(out));
  }
  using Block::fused;
  using Block::lookup_table;
  using Block::param;
  using Block::param_at;
  using Block::tied;
  Flow forward(const Params&, const Flow&, const Context&) const override { return {}; }

  /// Parts under this block's name, one matrix or bias of `local`.
  void fuse(const std::string& local, const std::vector<std::pair<std::string, Shape>>& parts) {
    std::vector<ParamSource> sources;
    for (const auto& [part, shape] : parts) sources.push_back({name() + "." + part, shape});
    fused(local, std::move(sources));
  }
};

inline OpenBlock& add_open(Model& model, std::string name, Component component, std::vector<std::string> in,
                           std::vector<std::string> out) {
  const bool sees = component == Component::kVision || component == Component::kProjector;
  auto block = std::make_unique<OpenBlock>(std::move(name), component, sees ? Modality::kImage : Modality::kText,
                                           std::move(in), std::move(out));
  OpenBlock& added = *block;
  model.blocks.push_back(std::move(block));
  return added;
}

/// Blocks: 0 embedding, 1 patches, 2 tower layer, 3 projector, 4 and 5 decoder layers, 6 head.
inline Model adapted_model(bool tied = false) {
  using enum Component;
  Model model{.family = "fake"};
  add_open(model, "model.embed_tokens", kLlm, {"input_ids"}, {"hidden"}).lookup_table("weight", {11, 4});
  auto& patches = add_open(model, "visual.patch_embed", kVision, {"pixel_values"}, {"media"});
  patches.param("proj.weight", {6, 3, 2, 2});
  patches.param("cls", {6});
  auto& tower = add_open(model, "visual.blocks.0", kVision, {"media"}, {"media"});
  tower.fuse("qkv.weight",
             {{"attn.q_proj.weight", {6, 6}}, {"attn.k_proj.weight", {6, 6}}, {"attn.v_proj.weight", {6, 6}}});
  tower.fuse("qkv.bias", {{"attn.q_proj.bias", {6}}, {"attn.k_proj.bias", {6}}, {"attn.v_proj.bias", {6}}});
  tower.param("attn.proj.weight", {6, 6});
  auto& projector = add_open(model, "multi_modal_projector", kProjector, {"media", "hidden"}, {"hidden"});
  projector.param("linear_1.weight", {4, 6});
  projector.param("linear_1.bias", {4});
  for (const char* name : {"model.layers.0", "model.layers.1"}) {
    auto& layer = add_open(model, name, kLlm, {"hidden"}, {"hidden"});
    layer.param("input_layernorm.weight", {4});
    layer.fuse("qkv.weight", {{"self_attn.q_proj.weight", {8, 4}},
                              {"self_attn.k_proj.weight", {4, 4}},
                              {"self_attn.v_proj.weight", {4, 4}}});
    layer.fuse("qkv.bias",
               {{"self_attn.q_proj.bias", {8}}, {"self_attn.k_proj.bias", {4}}, {"self_attn.v_proj.bias", {4}}});
    layer.param("self_attn.o_proj.weight", {4, 8});
    layer.fuse("gate_up.weight", {{"mlp.gate_proj.weight", {10, 4}}, {"mlp.up_proj.weight", {10, 4}}});
    layer.param("mlp.down_proj.weight", {4, 10});
  }
  auto& head = add_open(model, "lm_head", kLlm, {"hidden", "labels"}, {"loss"});
  head.param_at("norm.weight", "model.norm.weight", {4});
  if (tied) {
    head.tied("weight", "model.embed_tokens.weight", {11, 4}, "lm_head.weight");
  } else {
    head.param("weight", {11, 4});
  }
  model.unused.push_back({"visual.blocks.1.attn.proj.weight", {6, 6}});
  model.dialects = {{"in memory",
                     {{"visual.blocks.*.attn.q_proj.*", "model.visual.blocks.*.attn.qkv.*", stacked(0, 3, 6)},
                      {"visual.blocks.*.attn.k_proj.*", "model.visual.blocks.*.attn.qkv.*", stacked(1, 3, 6)},
                      {"visual.blocks.*.attn.v_proj.*", "model.visual.blocks.*.attn.qkv.*", stacked(2, 3, 6)},
                      {"visual.*", "model.visual.*"},
                      {"multi_modal_projector.*", "model.multi_modal_projector.*"},
                      {"model.*", "model.language_model.*"}}}};
  return model;
}
enum : size_t { kEmbedding, kPatches, kTower, kProjector, kLayer0, kLayer1, kHead };

inline AdapterLayout chosen(const Model& model, const LoraConfig& config, AdapterChoice choice = {}) {
  choice.config = config;
  return choose_adapters(model, naming_of_adapters(model, ""), choice);
}

inline Plan planned(const Model& model, const LoraConfig& config, PlanOptions options = {}) {
  options.adapters = std::make_shared<const AdapterLayout>(chosen(model, config));
  return make_plan(model, options);
}

inline const Unit* find_unit(const Plan& plan, const std::string& name) {
  for (const auto& unit : plan.units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

inline LoraConfig targets(std::vector<std::string> names) {
  return {.r = 2, .alpha = 8, .targets = {.names = std::move(names), .regex = {}}};
}

}  // namespace lockstep::test
