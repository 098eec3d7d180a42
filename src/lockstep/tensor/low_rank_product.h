// Products of which one side is as narrow as a rank of an adapter. R rows, I inputs, O outputs, r ranks.
//
// LibTorch's library is slow at these: what a call costs, and what is padded. Of 16-bit numbers on CPUs the wide factor is read
// where it stands, once, and the narrow one is widened; sums are float32's and rounded once. Of float32 packed_product.h has
// them, where it is quicker.
//
// Example:
//   const Tensor h_rR = empty_ranks(x_RI, ranks);
//   to_ranks(h_rR, x_RI, a_rI, 1.0);
//   from_ranks(y_RO, h_rR, b_rO, scale, /*add=*/true);
#pragma once

#include "lockstep/tensor/fwd.h"

namespace lockstep::fn {

/// to = scale * from, to float32, element by element, wherever either lies. LibTorch's copies of a narrow matrix cost more than
/// its products.
void copy_scaled(const Tensor& to, const Tensor& from, double scale);

/// Room for h [r,R] of the rows of x, in its dtype, laid out as the products below are quick with.
Tensor empty_ranks(const Tensor& x_RI, int64_t ranks);
/// h = scale * (x a^T)^T.
void to_ranks(const Tensor& h_rR, const Tensor& x_RI, const Tensor& a_rI, double scale);
/// y = scale * h^T b, or y += that.
void from_ranks(const Tensor& y_RO, const Tensor& h_rR, const Tensor& b_rO, double scale, bool add);
/// out = scale * h g, of any dtype, whatever its strides.
void over_rows(const Tensor& out_rO, const Tensor& h_rR, const Tensor& g_RO, double scale);

}  // namespace lockstep::fn
