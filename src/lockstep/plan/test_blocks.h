// Models for tests of device maps: blocks that only have names and parameters.
#pragma once

#include <string>
#include <utility>

#include "lockstep/model/test_block.h"

namespace lockstep {

inline FakeBlock& add_block(Model& model, std::string name) {
  return add_fake(model, std::move(name), Component::kLlm, Modality::kText, {}, {});
}

/// embed, tower.layout (no parameters), two tower layers, merge (none), rope (none), three layers, head with the last
/// norm; in memory it all stands under "model.", as transformers has it.
inline Model named_model(bool tied) {
  Model model{.family = "fake"};
  add_block(model, "model.embed_tokens").with("weight", {2, 2});
  add_block(model, "visual.layout");
  for (const char* layer : {"visual.blocks.0", "visual.blocks.1"}) add_block(model, layer).with("attn.weight", {2, 2});
  add_block(model, "merge_media");
  add_block(model, "model.rotary_emb");
  for (const char* layer : {"model.layers.0", "model.layers.1", "model.layers.2"}) {
    add_block(model, layer)
        .with("self_attn.q_proj.weight", {2, 2})
        .with("mlp.up_proj.weight", {2, 2})
        .with("norm.weight", {2, 2});
  }
  add_block(model, "lm_head")
      .with_key("norm", "model.norm.weight", {2, 2})
      .with_key("weight", tied ? "model.embed_tokens.weight" : "lm_head.weight", {2, 2}, tied);
  model.unused.push_back({"visual.blocks.2.attn.weight", {2, 2}});
  model.dialects = {{"in memory", {{"model.*", "model.language_model.*"}, {"visual.*", "model.visual.*"}}}};
  return model;
}

}  // namespace lockstep
