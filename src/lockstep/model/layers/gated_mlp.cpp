// D model, F mlp.
#include "lockstep/model/layers/gated_mlp.h"

#include <ATen/core/Tensor.h>

#include "lockstep/tensor/fn.h"

namespace lockstep {

namespace {

Tensor gated(const Params& params, const Tensor& x, const std::string& activation) {
  const int64_t width = params["mlp.down_proj.weight"].size(1);
  const Tensor both = params.linear("mlp.gate_up", x);
  return activation == "silu"
             ? fn::swiglu(both)
             : fn::activation(activation, both.narrow(-1, 0, width)).mul(both.narrow(-1, width, width));
}

}  // namespace

Tensor gated_mlp(const Params& params, const Tensor& x, const std::string& activation) {
  return params.linear("mlp.down_proj", gated(params, x, activation), {.summed = true});
}

Tensor add_gated_mlp(const Tensor& sum, const Params& params, const Tensor& x, const std::string& activation) {
  return params.add_linear(sum, "mlp.down_proj", gated(params, x, activation));
}

}  // namespace lockstep
