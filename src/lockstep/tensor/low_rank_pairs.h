// The products of low_rank_product.h of bfloat16, on processors that multiply pairs of it: twice as many in an instruction as of
// float32, and nothing is widened.
#pragma once

#include "lockstep/tensor/fwd.h"

namespace lockstep::fn {

// As the functions of low_rank_product.h, where multiplies_pairs() holds; rows of h and of `out`, which is float32, are contiguous.
void to_ranks_by_pairs(const Tensor& h_rR, const Tensor& x_RI, const Tensor& a_rI, double scale);
void from_ranks_by_pairs(const Tensor& y_RO, const Tensor& h_rR, const Tensor& b_rO, double scale, bool add);
void over_rows_by_pairs(const Tensor& out_rO, const Tensor& h_rR, const Tensor& g_RO, double scale);

}  // namespace lockstep::fn
