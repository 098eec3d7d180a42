// D model, F mlp.
#include "lockstep/model/layers/gated_mlp.h"

#include <ATen/core/Tensor.h>

#include "lockstep/tensor/fn.h"

namespace lockstep {

Tensor gated_mlp(const Params& params, const Tensor& x, const std::string& activation) {
  const int64_t width = params["mlp.down_proj.weight"].size(1);
  const Tensor both = params.linear("mlp.gate_up", x);
  const Tensor y = activation == "silu"
                       ? fn::swiglu(both)
                       : fn::activation(activation, both.narrow(-1, 0, width)).mul(both.narrow(-1, width, width));
  return params.linear("mlp.down_proj", y, {.summed = true});
}

}  // namespace lockstep
