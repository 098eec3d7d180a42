// Products with weights, tables of rows, patches.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/embedding.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {

Tensor linear(const Tensor& x, const Tensor& w) { return linear_product(x, w, std::nullopt); }
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b) { return linear_product(x, w, b); }
Tensor add_linear(const Tensor& sum, const Tensor& x, const Tensor& w) {
  if (at::GradMode::is_enabled() || !gpu::has_kernels(sum)) return sum.add(linear(x, w));
  Tensor rows = sum.view({-1, sum.size(-1)});
  rows.addmm_(x.reshape({-1, x.size(-1)}), w.t());
  return sum;
}
Tensor linear_without_value(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b) {
  return linear_product(x, w, b, /*valued=*/false);
}

Tensor embedding(const Tensor& ids, const Tensor& table) { return at::embedding(table, ids); }

Tensor scatter_rows(const Tensor& hidden, const Tensor& media, const Tensor& index) {
  const int64_t dim = hidden.size(-1);
  const Tensor rows = media.reshape({-1, dim}).to(hidden.scalar_type());
  return hidden.reshape({-1, dim}).index_copy(0, index, rows).view(hidden.sizes());
}

Tensor patches_of(const Tensor& pixels, int64_t patch) {
  const int64_t channels = pixels.size(1);
  const int64_t high = pixels.size(2) / patch;
  const int64_t wide = pixels.size(3) / patch;
  const Tensor whole = pixels.narrow(2, 0, high * patch).narrow(3, 0, wide * patch);  // a remainder is not looked at
  return whole.reshape({-1, channels, high, patch, wide, patch})
      .permute({0, 2, 4, 1, 3, 5})
      .reshape({pixels.size(0), high * wide, channels * patch * patch});
}

}  // namespace lockstep::fn
