// Attention of whole heads on a CPU with AVX-512, or with AVX2 in float32: tiles of small products around one fused
// element-wise pass.
//
// LibTorch's own multiplies in small blocks without packing, and bfloat16 through float32 where there is no AMX.
// Source: Dao 2023, "FlashAttention-2", section 3.1, with the score tile transposed, so that what belongs to a query stands in
// a lane.
#pragma once

#include <array>

#include "lockstep/tensor/attention_cpu.h"

namespace lockstep::fn {

/// Fills out [B,N,T,H] and lse [B,N,T] f32, as AttentionTrace has them; k and v may have fewer heads, that queries share, and
/// where causal more tokens, of which the last are the queries'. Of hollow tensors: takes the same working memory. The head
/// dim is contiguous in all.
void forward_heads(const AttentionTrace& trace);

/// Fills the gradients of q, k, v for `grad` [B,N,T,H], likewise.
void backward_heads(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads);

}  // namespace lockstep::fn
