// Numbers that are dropped at random, the same on every device.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpu_kernels.h"

namespace lockstep::fn {
namespace {

/// A number stays where the upper 32 of its bits reach this.
uint64_t threshold_of(double p) { return static_cast<uint64_t>(std::llround(p * 4294967296.0)); }

void drop_here(const Tensor& to, const Tensor& x, double p, const std::vector<uint64_t>& keys) {
  const uint64_t threshold = threshold_of(p);
  if (threshold > std::numeric_limits<uint32_t>::max()) {
    if (!to.is_meta()) to.zero_();
    return;
  }
  const auto scale = static_cast<float>(1.0 / (1.0 - p));
  const auto stretch = x.numel() / static_cast<int64_t>(keys.size());
  with_element(x, [&]<typename T>() {
    const T* from = read_of<T>(x);
    T* out = write_of<T>(to);
    for (const uint64_t key : keys) {
      kernels::parallel_rows(stretch, kGrain, [&](int64_t begin, int64_t end) {
        kernels::table<T>().drop({.x = from + begin,
                                  .y = out + begin,
                                  .n = end - begin,
                                  .key = key,
                                  .first = static_cast<uint64_t>(begin),
                                  .threshold = static_cast<uint32_t>(threshold),
                                  .scale = scale});
      });
      from += stretch;
      out += stretch;
    }
  });
}

/// The same bits by LibTorch's ops on 64-bit integers, for other devices.
Tensor kept_there(const Tensor& x, double p, const std::vector<uint64_t>& keys) {
  const auto stretch = x.numel() / static_cast<int64_t>(keys.size());
  const auto signed_of = [](uint64_t value) { return static_cast<int64_t>(value); };
  const auto shifted = [](const Tensor& z, int64_t by) {  // arithmetic shifts bring the sign along
    return z.bitwise_right_shift(by).bitwise_and(static_cast<int64_t>((uint64_t{1} << (64 - by)) - 1));
  };
  Tensor steps = at::empty({stretch}, x.options().dtype(at::kLong));  // a hollow arange() by itself is not counted
  at::arange_out(steps, 1, stretch + 1, 1).mul_(signed_of(0x9E3779B97F4A7C15ULL));
  const Tensor kept = at::empty({static_cast<int64_t>(keys.size()), stretch}, x.options());
  // Hollow, every stretch takes the same memory as the first: a plan of hundreds of rows need not pass them all.
  const size_t stretches = x.is_meta() ? std::min<size_t>(1, keys.size()) : keys.size();
  for (size_t k = 0; k < stretches; ++k) {
    Tensor z = steps.add(signed_of(keys[k]));
    z = z.bitwise_xor(shifted(z, 30)).mul_(signed_of(0xBF58476D1CE4E5B9ULL));
    z = z.bitwise_xor(shifted(z, 27)).mul_(signed_of(0x94D049BB133111EBULL));
    z = z.bitwise_xor(shifted(z, 31));
    kept.select(0, static_cast<int64_t>(k)).copy_(shifted(z, 32).ge(signed_of(threshold_of(p))));
  }
  return kept.view(x.sizes());
}

Tensor dropped(const Tensor& x, double p, const std::vector<uint64_t>& keys) {
  const Tensor whole = x.contiguous();
  const bool on_gpu = gpu::has_kernels(whole);
  if (!has_kernels(whole) && !on_gpu) return whole.mul(kept_there(whole, p, keys)).mul_(1.0 / (1.0 - p));
  Tensor to = at::empty_like(whole);
  if (!on_gpu) {
    drop_here(to, whole, p, keys);
    return to;
  }
  const auto rows = static_cast<int64_t>(keys.size());
  const Tensor from_KS = whole.view({rows, -1}), to_KS = to.view({rows, -1});
  for (int64_t k = 0; k < rows && !whole.is_meta(); ++k) {
    gpu::drop(to_KS.select(0, k), from_KS.select(0, k), keys[static_cast<size_t>(k)], threshold_of(p), 1.0 / (1.0 - p));
  }
  return to;
}

/// What is dropped is decided again on the way back: nothing is kept for it.
class Dropout final : public Function<Dropout> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, double p, const std::vector<uint64_t>& keys) {
    ctx->saved_data["p"] = p;
    ctx->saved_data["keys"] = std::vector<int64_t>(keys.begin(), keys.end());
    return dropped(x, p, keys);
  }
  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto keys = ctx->saved_data["keys"].toIntVector();
    return {dropped(grads[0], ctx->saved_data["p"].toDouble(), {keys.begin(), keys.end()}), Tensor(), Tensor()};
  }
};

}  // namespace

Tensor dropout(const Tensor& x, double p, const std::vector<uint64_t>& keys) { return Dropout::apply(x, p, keys); }

}  // namespace lockstep::fn
