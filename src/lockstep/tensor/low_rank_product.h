// Products of which one side is as narrow as a rank of an adapter. R rows, I inputs, O outputs, r ranks.
//
// LibTorch's library is slow at these: what a call costs, and what is padded. Of 16-bit numbers on CPUs the wide factor is read
// where it stands, once, and the narrow one is widened; sums are float32's and rounded once. Of float32 packed_product.h has
// them, where it is quicker.
//
// Example:
//   const Tensor h_rR = to_ranks(x_RI, a_rI);
//   from_ranks(y_RO, h_rR, b_rO, /*add=*/true);
#pragma once

#include "lockstep/tensor/fwd.h"

namespace lockstep::fn {

/// (x a^T)^T: [r,R], in the dtype of x.
Tensor to_ranks(const Tensor& x_RI, const Tensor& a_rI);
/// y = h^T b, or y += that.
void from_ranks(const Tensor& y_RO, const Tensor& h_rR, const Tensor& b_rO, bool add);
/// h g: [r,O], in float32 or the dtype of g.
Tensor over_rows(const Tensor& h_rR, const Tensor& g_RO);

}  // namespace lockstep::fn
