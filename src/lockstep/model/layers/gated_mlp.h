// act(gate) * up, then down: the feed-forward part of Llama's descendants and of some towers.
#pragma once

#include <string>

#include "lockstep/model/block.h"

namespace lockstep {

/// x [.., D] -> [.., D], with the parameters "mlp.gate_up.weight" [2F,D] (the gate first) and "mlp.down_proj.weight"
/// [D,F] of the block, and their biases where there are any.
Tensor gated_mlp(const Params& params, const Tensor& x, const std::string& activation);
/// sum + that; nobody else may need `sum`.
Tensor add_gated_mlp(const Tensor& sum, const Params& params, const Tensor& x, const std::string& activation);

}  // namespace lockstep
