// The backward of attention on the CPU: tiles of matrix-unit products around one fused element-wise pass.
//
// LibTorch's own backward spends five times as long at 256 tokens: it multiplies in small blocks without packing.
#pragma once

#include <array>
#include <utility>

#include "lockstep/tensor/fwd.h"

namespace lockstep::fn {

/// What the forward pass left: q, out [B,N,T,H], k, v [B,N,S,H], lse [B,N,T] f32 (natural log of the scaled scores'
/// sum).
struct AttentionTrace {
  const Tensor &q, &k, &v, &out, &lse;
  bool causal;
};

/// LibTorch's flash forward: out and lse as AttentionTrace wants them; on hollow tensors what it would allocate. Where
/// widens(q), some heads at a time are widened to float32, and out is rounded once.
std::pair<Tensor, Tensor> attention_forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v, bool causal);

/// Whether this machine and these tensors suit attention_backward_cpu.
bool has_attention_backward(const Tensor& q);

/// Gradients of q, k, v for `grad` [B,N,T,H]. The head dim is contiguous in all. Where widens(q), in float32 like the
/// forward, by LibTorch's backward where the machine does not suit ours.
/// Source: Dao 2023, "FlashAttention-2", section 3.1 (backward), with the score tile transposed.
std::array<Tensor, 3> attention_backward_cpu(const Tensor& grad, const AttentionTrace& trace);

}  // namespace lockstep::fn
