// Products of matrices, whichever way this CPU is quick. 16-bit ones where it cannot multiply 16-bit numbers by itself:
// LibTorch's own take 2 to 60 times as long there as float32, so tiles of both factors are widened to float32, multiplied and
// summed there, and the result is rounded once. Those of float32 where packed_product.h is quicker. All others, and those on
// other devices, are LibTorch's.
//
// Example:
//   const Tensor logits = product(hidden_RD, w_VD.t());
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/processor_choice.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

/// Whether LibTorch multiplies matrices of `dtype` on this CPU at least as fast as float32: bfloat16 where the processor has
/// instructions for it and neither ONEDNN_MAX_CPU_ISA nor ATEN_CPU_CAPABILITY takes them away; float16 never (its own code
/// is kept the same on all CPUs). The one place that decides.
bool multiplies_natively(Dtype dtype);

/// What the matrix library holds once it has met as many shapes of products in `dtype` as it keeps (kMadeProducts): a run whose
/// rows differ in length has met them within a few steps. None where it makes nothing for a shape.
int64_t bytes_of_made_products(Dtype dtype);

/// For tests: as a CPU with (or without) instructions for bfloat16 multiplies it.
using NativeProducts = ProcessorChoice<struct NativeProductsName>;

namespace fn {

/// Whether products with `x` are made of widened tiles: it is 16-bit, and on a CPU (or rehearsed there) that is slow at it.
bool widens(const Tensor& x);

/// Whether kernels_pairs.h has kernels for `x`: bfloat16 that is not widened, on (or rehearsed for) a CPU with instructions for
/// pairs of it.
bool multiplies_pairs(const Tensor& x);

/// a [M,K] * b [K,N] -> [M,N].
Tensor product(const Tensor& a, const Tensor& b);
/// The same into `out` [M,N]; its rows are contiguous.
void product_into(const Tensor& out, const Tensor& a, const Tensor& b);

/// x[..., in] * w[out, in]^T (+ b[out]), differentiable in all three.
Tensor linear_product(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b, bool valued = true);

}  // namespace fn
}  // namespace lockstep
