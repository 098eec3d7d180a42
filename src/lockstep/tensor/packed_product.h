// Products of float32 matrices from packed blocks, for processors that are not Intel's: LibTorch's library has its quick kernels
// for those alone (docs/speed.md has figures). Each sum has one order, so that its bits do not depend on the number of threads.
//
// Example:
//   if (packs_product(a_MK, {M, K, N})) multiply_packed(out_MN, a_MK, b_KN, {});
// Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", section 4.
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/processor_choice.h"

namespace lockstep {

using PackedProducts = ProcessorChoice<struct PackedProductsName>;

namespace fn {

/// Of a [M,K] * b [K,N].
struct ProductSize {
  int64_t rows, depth, columns;
};

/// Whether products of `x` are not LibTorch's: float32 on (or rehearsed for) a CPU on which its library is slow.
bool multiplies_by_own_kernels(const Tensor& x);

/// Whether such a product of `x` is packed: they are ours, and it is large enough.
bool packs_product(const Tensor& x, const ProductSize& size);

/// The same of one that is narrow: a rank of an adapter is its smallest side, the others are large enough.
bool packs_narrow_product(const Tensor& x, const ProductSize& size);

/// Columns [first, first + count) of what ranks add, of `rank` ranks from `begin` on.
struct RankColumns {
  int64_t first, count, begin, rank;
};
/// left [M,r] * right [r, N and more, up to a multiple of 16], rows of both contiguous, is added while a sum is in registers: alone
/// it would read and write the whole result for a few products. right is zero where no columns are.
struct AddedRanks {
  const Tensor &left, &right;
  std::span<const RankColumns> columns;
};

/// So many of `depth` numbers are summed before they are added to the rest.
int64_t packed_depth(int64_t depth);

/// out [M,N] = a [M,K] * b [K,N] (+ bias [N], where it is defined; + what ranks add), all float32; the rows of out are contiguous.
void multiply_packed(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias,
                     const AddedRanks* added = nullptr);
/// out += a * b, likewise.
void add_packed(const Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace fn
}  // namespace lockstep
