// M rows, K summed over, N columns; R rows of a projection, I its inputs, O its outputs.
#include "lockstep/tensor/product.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/env.h"
#include "lockstep/base/machine.h"
#include "lockstep/tensor/few_rows_product.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/kernels_pairs.h"
#include "lockstep/tensor/libtorch_allocators.h"
#include "lockstep/tensor/packed_product.h"

namespace lockstep {
bool multiplies_natively(Dtype dtype) {
  if (dtype == Dtype::kF16) return false;
  if (dtype != Dtype::kBF16) return true;
  // LibTorch's libraries read their limits from the process's environment, so that is what counts here, whatever a host
  // passes on as its own.
  static const bool machine = multiplies_bfloat16(Env::process());
  return NativeProducts::made(machine);
}

int64_t bytes_of_made_products(Dtype dtype) {
  // Measured: 25 to 34 MiB for 32 of them, of models of any size (bench/resident_memory.cpp).
  constexpr int64_t kOfEach = int64_t{896} << 10;
  return dtype == Dtype::kBF16 && multiplies_natively(dtype) ? kMadeProducts * kOfEach : 0;
}

namespace fn {
namespace {

// Largest tiles: 14 MiB in float32 together. Wide enough that widening, once a tile, is a few per cent of the product.
constexpr int64_t kTileM = 512, kTileN = 1024, kTileK = 2048;

at::TensorOptions wide(const Tensor& like) { return like.options().dtype(at::kFloat); }

/// m in float32, laid out as it is, in `memory`.
Tensor widened(const Tensor& m, const Tensor& memory) {
  const int64_t rows = m.size(0), columns = m.size(1);
  const bool turned = m.stride(0) == 1 && m.stride(1) != 1;
  const Tensor flat = memory.narrow(0, 0, rows * columns);
  if (!turned) return flat.view({rows, columns}).copy_(m);
  return flat.view({columns, rows}).copy_(m.t()).t();
}

/// to = a * b, or to += that, of float32 tiles.
void multiply_tile(const Tensor& to, const Tensor& a, const Tensor& b, bool add) {
  if (packs_product(a, {a.size(0), a.size(1), b.size(1)})) {
    return add ? add_packed(to, a, b) : multiply_packed(to, a, b, {});
  }
  if (to.is_meta()) return;
  Tensor out = to;
  add ? out.addmm_(a, b) : at::mm_out(out, a, b);
}

/// out = a * b (+ bias), a tile at a time.
void multiply_tiles(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int64_t M = a.size(0), K = a.size(1), N = b.size(1);
  const int64_t tile_m = std::min(M, kTileM), tile_n = std::min(N, kTileN), tile_k = std::min(K, kTileK);
  const Tensor memory_a = at::empty({tile_m * tile_k}, wide(a)), memory_b = at::empty({tile_k * tile_n}, wide(a));
  const Tensor memory_c = at::empty({tile_m * tile_n}, wide(a));
  if (out.is_meta()) {  // no tile takes more than the first
    const Tensor a_MK = widened(a.narrow(0, 0, tile_m).narrow(1, 0, tile_k), memory_a);
    const Tensor b_KN = widened(b.narrow(0, 0, tile_k).narrow(1, 0, tile_n), memory_b);
    return multiply_tile(memory_c.view({tile_m, tile_n}), a_MK, b_KN, /*add=*/false);
  }
  for (int64_t m = 0; m < M; m += tile_m) {
    const int64_t rows = std::min(tile_m, M - m);
    Tensor a_MK;
    for (int64_t n = 0; n < N; n += tile_n) {
      const int64_t columns = std::min(tile_n, N - n);
      const Tensor c_MN = memory_c.narrow(0, 0, rows * columns).view({rows, columns});
      for (int64_t k = 0; k < K; k += tile_k) {
        const int64_t depth = std::min(tile_k, K - k);
        const bool kept = a_MK.defined() && tile_k == K;  // the same for every tile of columns
        if (!kept) a_MK = widened(a.narrow(0, m, rows).narrow(1, k, depth), memory_a);
        const Tensor b_KN = widened(b.narrow(0, k, depth).narrow(1, n, columns), memory_b);
        multiply_tile(c_MN, a_MK, b_KN, /*add=*/k > 0);
      }
      if (bias.defined()) c_MN.add_(bias.narrow(0, n, columns));
      out.narrow(0, m, rows).narrow(1, n, columns).copy_(c_MN);
    }
  }
}

/// How a few rows are multiplied with weights whose own rows are contiguous: each weight is read once, where it stands.
/// LibTorch's library copies them first, or takes them one number after the other, where it has no quick kernels; for one row
/// of bfloat16 oneDNN took 1.7 times as long where the processor multiplies them (Zen 4).
enum class FewRows : uint8_t { kNo, kOne, kSome };
FewRows few_rows_of(const Tensor& a, int64_t rows, bool weights_lie_in_rows) {
  if (!weights_lie_in_rows || rows == 0) return FewRows::kNo;
  if (multiplies_few_rows(a, rows)) return FewRows::kSome;
  const bool ours = a.scalar_type() == at::kFloat ? multiplies_by_own_kernels(a) : has_kernels(a);
  return ours && rows == 1 ? FewRows::kOne : FewRows::kNo;
}

/// Each output by itself: weights come from memory as one stream.
void multiply_one_row(const Tensor& out, const Tensor& a, const Tensor& w_NK, const Tensor& bias) {
  const int64_t K = a.size(1), N = w_NK.size(0);
  const Tensor a_K = a.to(at::kFloat).contiguous(), bias_N = bias.defined() ? bias.to(at::kFloat) : Tensor();
  with_element(out, [&]<typename T>() {
    kernels::parallel_rows(N, grain_of(K), [&](int64_t begin, int64_t end) {
      kernels::table<T>().multiply_rows({.x = read_of<float>(a_K),
                                         .w = read_of<T>(w_NK) + begin * w_NK.stride(0),
                                         .bias = bias_N.defined() ? read_of<float>(bias_N) + begin : nullptr,
                                         .y = write_of<T>(out) + begin,
                                         .w_stride = w_NK.stride(0),
                                         .y_stride = out.stride(0),
                                         .rows = 1,
                                         .outputs = end - begin,
                                         .dim = K});
    });
  });
}

/// Whether LibTorch's own product is not taken.
bool is_ours(const Tensor& a, const Tensor& b) {
  return widens(a) || few_rows_of(a, a.size(0), b.stride(0) == 1) != FewRows::kNo ||
         packs_product(a, {a.size(0), a.size(1), b.size(1)});
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const FewRows few = few_rows_of(a, a.size(0), b.stride(0) == 1);
  if (few == FewRows::kOne) return multiply_one_row(out, a, b.t(), bias);
  if (few == FewRows::kSome) return multiply_few_rows(out, a, b.t(), bias);
  widens(a) ? multiply_tiles(out, a, b, bias) : multiply_packed(out, a, b, bias);
}

Tensor own_linear(const Tensor& x, const Tensor& w_OI, const std::optional<Tensor>& b_O, bool valued) {
  auto shape = x.sizes().vec();
  const Tensor x_RI = x.reshape({-1, shape.back()});
  shape.back() = w_OI.size(0);
  // Not a view: it may be added to where it stands.
  Tensor y = valued ? at::empty(shape, x.options()) : at::zeros(shape, x.options());
  if (valued) multiply(y.view({x_RI.size(0), shape.back()}), x_RI, w_OI.t(), b_O.value_or(Tensor()));
  return y;
}

class OwnLinear final : public Function<OwnLinear> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w_OI, const std::optional<Tensor>& b_O,
                        bool want_x, bool want_w, bool want_b, bool valued) {
    const Tensor y = own_linear(x, w_OI, b_O, valued);
    ctx->save_for_backward({want_w ? x : Tensor(), want_x ? w_OI : Tensor()});  // what the other's gradient needs
    ctx->saved_data["want_b"] = want_b;
    return y;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &w_OI = saved[1];
    const Tensor g_RO = grads[0].reshape({-1, grads[0].size(-1)});
    Tensor dx, dw, db;
    if (w_OI.defined()) {
      auto shape = grads[0].sizes().vec();
      shape.back() = w_OI.size(1);
      dx = product(g_RO, w_OI).view(shape);
    }
    if (x.defined()) dw = product(g_RO.t(), x.reshape({-1, x.size(-1)}));
    if (ctx->saved_data["want_b"].toBool()) db = g_RO.sum(0);
    return {dx, dw, db, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

bool widens(const Tensor& x) {
  if (x.scalar_type() == at::kHalf) return !multiplies_natively(Dtype::kF16) && on_cpu(x);
  return x.scalar_type() == at::kBFloat16 && !multiplies_natively(Dtype::kBF16) && on_cpu(x);
}

bool multiplies_pairs(const Tensor& x) {
  return x.scalar_type() == at::kBFloat16 && on_cpu(x) && !widens(x) && kernels::pair_table() != nullptr;
}

void product_into(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (is_ours(a, b)) return multiply(out, a, b, {});
  Tensor to = out;
  at::mm_out(to, a, b);
}

Tensor product(const Tensor& a, const Tensor& b) {
  if (!is_ours(a, b)) return a.mm(b);
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  multiply(out, a, b, {});
  return out;
}

Tensor linear_product(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b, bool valued) {
  const int64_t depth = w.size(1), rows = depth == 0 ? 0 : x.numel() / depth;
  const bool ours =
      widens(x) || few_rows_of(x, rows, w.stride(1) == 1) != FewRows::kNo || packs_product(x, {rows, depth, w.size(0)});
  if (valued && !ours) return at::linear(x, w, b);
  if (!at::GradMode::is_enabled()) return own_linear(x, w, b, valued);
  const auto wanted = [](const Tensor& y) { return y.requires_grad(); };
  return OwnLinear::apply(x, w, b, wanted(x), wanted(w), b && wanted(*b), valued);
}

}  // namespace fn
}  // namespace lockstep
