// A parameter as the model uses it: one tensor, from one or several checkpoint tensors laid behind one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/tensor/spec.h"

namespace lockstep {

/// A tensor of the checkpoint that fills part of a parameter.
struct ParamSource {
  std::string key;  // as in the released checkpoint: "model.layers.3.self_attn.q_proj.weight"
  Shape shape;
  bool operator==(const ParamSource&) const = default;
};

/// q, k and v (or gate and up) stand behind one another along dim 0, so that one matrix product serves all: `shape` is
/// the whole, `sources` the parts. A parameter that another block owns (tied head) has `tied` set and is not stored
/// twice.
struct ParamSpec {
  std::string local;  // how the block calls it: "self_attn.qkv.weight"
  Shape shape;
  std::vector<ParamSource> sources;
  bool tied = false;

  int64_t numel() const { return numel_of(shape); }
  bool decays() const { return shape.size() >= 2; }  // weight decay on matrices only, as in the HF Trainer
};

}  // namespace lockstep
