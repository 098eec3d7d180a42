// Tests only: blocks that are declarations alone, for what works from declarations alone.
//
// Example:
//   add_fake(model, "head", Component::kLlm, Modality::kText, {"hidden"}, {"loss"}).with("weight", {10, 4});
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/model/model.h"

namespace lockstep {

class FakeBlock final : public Block {
 public:
  FakeBlock(std::string name, Component component, Modalities runs_on, std::vector<std::string> in,
            std::vector<std::string> out)
      : Block(std::move(name), component, runs_on) {
    reads(std::move(in));
    writes(std::move(out));
  }
  FakeBlock& with(std::string local, Shape shape) {
    param(std::move(local), std::move(shape));
    return *this;
  }
  FakeBlock& with_key(std::string local, std::string key, Shape shape, bool tied = false) {
    if (tied) {
      this->tied(std::move(local), std::move(key), std::move(shape), name() + ".weight");
    } else {
      param_at(std::move(local), std::move(key), std::move(shape));
    }
    return *this;
  }
  FakeBlock& keeps() {
    never_recompute();
    return *this;
  }
  Flow forward(const Params&, const Flow&, const Context&) const override { return {}; }
};

inline FakeBlock& add_fake(Model& model, std::string name, Component component, Modalities runs_on,
                           std::vector<std::string> in, std::vector<std::string> out) {
  auto block = std::make_unique<FakeBlock>(std::move(name), component, runs_on, std::move(in), std::move(out));
  FakeBlock& added = *block;
  model.blocks.push_back(std::move(block));
  return added;
}

}  // namespace lockstep
