// The one loop that adds the parts of all ranks: in rank order, in float32, whatever the transport.
#pragma once

#include <span>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

/// sum[i] (+)= parts[0][i] + parts[1][i] + …, the parts added first. Host memory; parts are f32, bf16 or f16.
void sum_in_rank_order(float* sum, std::span<const void* const> parts, Dtype dtype, int64_t numel, bool accumulate);

/// value[i] := sum or maximum over parts, for small tensors of f32, f64 or i64.
void reduce_in_rank_order(void* value, std::span<const void* const> parts, Dtype dtype, int64_t numel, bool maximum);

}  // namespace lockstep
