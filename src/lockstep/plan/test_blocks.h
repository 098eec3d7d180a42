// Models for tests of device maps: blocks that only have names and parameters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/model/model.h"

namespace lockstep {

class NamedBlock final : public Block {
 public:
  explicit NamedBlock(std::string name) : Block(std::move(name), Component::kLlm, Modality::kText) {}
  NamedBlock& with(std::string local) {
    param(std::move(local), {2, 2});
    return *this;
  }
  NamedBlock& with_key(std::string local, std::string key, bool tied = false) {
    param_at(std::move(local), std::move(key), {2, 2}, tied);
    return *this;
  }
  Flow forward(const Params&, const Flow&, const Context&) const override { return {}; }
};

inline NamedBlock& add_block(Model& model, std::string name) {
  auto block = std::make_unique<NamedBlock>(std::move(name));
  NamedBlock& added = *block;
  model.blocks.push_back(std::move(block));
  return added;
}

/// embed, tower.layout (no parameters), two tower layers, merge (none), rope (none), three layers, head with the last
/// norm; in memory it all stands under "model.", as transformers has it.
inline Model named_model(bool tied) {
  Model model{.family = "fake"};
  add_block(model, "model.embed_tokens").with("weight");
  add_block(model, "visual.layout");
  for (const char* layer : {"visual.blocks.0", "visual.blocks.1"}) add_block(model, layer).with("attn.weight");
  add_block(model, "merge_media");
  add_block(model, "model.rotary_emb");
  for (const char* layer : {"model.layers.0", "model.layers.1", "model.layers.2"}) {
    add_block(model, layer).with("self_attn.q_proj.weight").with("mlp.up_proj.weight").with("norm.weight");
  }
  add_block(model, "lm_head")
      .with_key("norm", "model.norm.weight")
      .with_key("weight", tied ? "model.embed_tokens.weight" : "lm_head.weight", tied);
  model.unused.push_back({"visual.blocks.2.attn.weight", {2, 2}});
  model.dialects = {{"in memory", {{"model.", "model.language_model."}, {"visual.", "model.visual."}}}};
  return model;
}

}  // namespace lockstep
