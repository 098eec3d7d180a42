// Products of a few rows with weights, each of which is read once, where it stands: the rows are what is packed. LibTorch's
// library took twice as long (32 rows of bfloat16, Zen 4; docs/speed.md has figures).
//
// Example:
//   if (multiplies_few_rows(x_MK, M)) multiply_few_rows(out_MN, x_MK, w_NK, {});
#pragma once

#include <cstdint>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/processor_choice.h"

namespace lockstep {

/// Whether pairs of bfloat16 are multiplied by the processor's instructions, where it has them.
using PairedProducts = ProcessorChoice<struct PairedProductsName>;

namespace fn {

/// Whether `rows` rows of x[..., K] are multiplied so: 2 to 64, on (or rehearsed for) a CPU that does not multiply 16-bit numbers
/// by itself; or by its instructions for pairs of bfloat16, where K is even and Intel did not make it; of float32, where
/// packed_product.h is quick.
bool multiplies_few_rows(const Tensor& x, int64_t rows);

/// out [M,N] = x [M,K] * w [N,K]^T (+ bias [N], where it is defined), summed in float32 and rounded once; rows of out and w are
/// contiguous. A row's bits do not depend on the others; of float32 they are those that it has among many.
void multiply_few_rows(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias);

}  // namespace fn
}  // namespace lockstep
