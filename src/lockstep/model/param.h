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
  bool learns = true;  // of a parameter that is trained: false where this part stays as it is
  bool operator==(const ParamSource&) const = default;
};

/// What of a model's modules a parameter belongs to: an adapter changes matrices and tables.
enum class ParamKind : uint8_t {
  kPlain,   // norms, biases, what is learnt by itself
  kMatrix,  // "….weight" of a product, patch kernels too: [out, in...]
  kTable,   // "….weight" of rows that are looked up
};

/// q, k and v (or gate and up) stand behind one another along dim 0, so that one matrix product serves all: `shape` is
/// the whole, `sources` the parts. A parameter that another block owns (tied head) has `tied` set and is not stored
/// twice.
struct ParamSpec {
  std::string local;  // how the block calls it: "self_attn.qkv.weight"
  Shape shape;
  std::vector<ParamSource> sources;
  bool tied = false;
  std::string untied_key = {};  // of a tied one: what files call it that have it twice
  ParamKind kind = ParamKind::kPlain;
  double rate = 1;  // its learning rate over the others'

  int64_t numel() const { return numel_of(shape); }
};

}  // namespace lockstep
