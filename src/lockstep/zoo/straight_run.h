// For tests: a model's blocks one after another on one machine, autograd through the whole chain, no plan and no
// shards.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/model/batch.h"
#include "lockstep/model/block.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/model.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class StraightRun {
 public:
  /// Parameters as leaves that want gradients.
  StraightRun(const Model& model, const Weights& weights, const KeyMap& keys, Dtype dtype);
  /// Blocks of towers run where pixel_values or audio_values are there.
  Flow forward(Flow flow, const Context& context) const;
  /// Gradients of `loss` by checkpoint key: fused parameters are cut, a tied one is summed.
  std::map<std::string, Tensor> gradients(const Tensor& loss) const;
  /// `count` greedy tokens for each row, all rows together.
  Tensor greedy(const std::vector<Features>& prompts, int64_t count) const;

 private:
  struct Owned {
    ParamSpec spec;
    Tensor value;
  };
  const Model& model_;
  std::vector<Owned> owned_;
  std::vector<std::vector<Tensor>> params_;  // by block
};

}  // namespace lockstep
