// Attention on the CPU: our own kernels where the machine suits them, LibTorch's elsewhere, in float32 where 16-bit products
// are slow.
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
  int64_t window;  // where causal: a query looks at so many keys at most, its own the last of them; 0: all
};

/// Whether this machine and these tensors suit our own kernels (attention_heads.h).
bool has_attention_kernels(const Tensor& q);

/// The same, for causal queries that are the last of more keys: attention_forward_cpu takes them then.
bool has_kernels_for_past(const Tensor& q);

/// out and lse as AttentionTrace wants them; on hollow tensors what it would allocate. The head dim is contiguous in all.
/// Where widens(q), some heads at a time are widened to float32, and out is rounded once.
std::pair<Tensor, Tensor> attention_forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                                int64_t window);

/// Gradients of q, k, v for `grad` [B,N,T,H], by LibTorch's backward where the machine does not suit ours; where widens(q) in
/// float32 like the forward. The head dim is contiguous in all.
std::array<Tensor, 3> attention_backward_cpu(const Tensor& grad, const AttentionTrace& trace);

}  // namespace lockstep::fn
