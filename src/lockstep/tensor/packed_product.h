// Products of float32 matrices from packed blocks. LibTorch's library has its quick kernels for Intel's processors alone: on
// others with AVX-512 this takes about a seventh less time (measured on Zen 4, 512 rows). Each sum has one order, so that its
// bits do not depend on the number of threads.
//
// Example:
//   if (packs_product(a_MK, b_KN)) multiply_packed(out_MN, a_MK, b_KN, {});
// Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", section 4.
#pragma once

#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// For tests: while it lives, the whole process packs products (or does not), whatever the processor.
class [[nodiscard]] PackedProducts {
 public:
  explicit PackedProducts(bool packed);
  ~PackedProducts();
  PackedProducts(const PackedProducts&) = delete;
  PackedProducts& operator=(const PackedProducts&) = delete;

 private:
  int before_;
};

namespace fn {

/// Whether float32 products on (or rehearsed for) this CPU are packed.
bool packs_products(const Tensor& x);

/// Whether a [M,K] * b [K,N] is: it is large enough for that to pay, too.
bool packs_product(const Tensor& a, const Tensor& b);

/// out [M,N] = a [M,K] * b [K,N] (+ bias [N], where it is defined), all float32; the rows of out are contiguous.
void multiply_packed(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias);

}  // namespace fn
}  // namespace lockstep
