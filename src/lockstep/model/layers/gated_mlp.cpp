// D model, F mlp.
#include "lockstep/model/layers/gated_mlp.h"

#include <ATen/core/Tensor.h>

#include "lockstep/tensor/fn.h"

namespace lockstep {

Tensor gated_mlp(const Params& params, const Tensor& x, const std::string& activation, bool bias) {
  const Tensor &gate_up = params["mlp.gate_up.weight"], &down = params["mlp.down_proj.weight"];
  const int64_t width = down.size(1);
  const Tensor both = bias ? fn::linear(x, gate_up, params["mlp.gate_up.bias"]) : fn::linear(x, gate_up);
  const Tensor y = activation == "silu"
                       ? fn::swiglu(both)
                       : fn::activation(activation, both.narrow(-1, 0, width)).mul(both.narrow(-1, width, width));
  return bias ? fn::linear(y, down, params["mlp.down_proj.bias"]) : fn::linear(y, down);
}

}  // namespace lockstep
