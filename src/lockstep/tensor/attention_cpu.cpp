// T queries, S keys, H head size.
#include "lockstep/tensor/attention_cpu.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>

#include "lockstep/tensor/attention_bands.h"
#include "lockstep/tensor/attention_heads.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

/// With fewer, LibTorch's forward is as quick or quicker: ours works on blocks of 64.
constexpr int64_t kLeastQueries = 48;

/// [B,N,T,H] whose memory is [B,T,N,H], as the projections have it.
Tensor empty_heads(const Tensor& like) {
  return at::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

/// Of [B,N,..]: some heads of one row, or some rows with all their heads.
struct Part {
  int64_t row, rows, head, heads;
  Tensor of(const Tensor& x) const { return x.narrow(0, row, rows).narrow(1, head, heads); }
  Tensor wide(const Tensor& x) const { return of(x).to(at::kFloat); }
};

/// q and k cut so that a part has about 4 MiB in float32 of each, or one head.
std::vector<Part> parts_of(const Tensor& q, const Tensor& k) {
  constexpr int64_t kElements = int64_t{1} << 20;
  const int64_t batch = q.size(0), heads = q.size(1);
  const int64_t a_head = std::max<int64_t>(1, std::max(q.size(2), k.size(2)) * q.size(3));
  const int64_t some_heads = std::clamp<int64_t>(kElements / a_head, 1, heads);
  const int64_t some_rows = std::clamp<int64_t>(kElements / (a_head * heads), 1, batch);
  std::vector<Part> parts;
  for (int64_t b = 0; b < batch; b += some_rows) {
    for (int64_t n = 0; n < heads; n += some_heads) {
      parts.push_back({b, std::min(some_rows, batch - b), n, std::min(some_heads, heads - n)});
    }
  }
  return parts;
}

std::pair<Tensor, Tensor> widened_forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                          int64_t window) {
  const Tensor out = empty_heads(q);
  const Tensor lse = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2);
  for (const Part& part : parts_of(q, k)) {
    const auto [out_part, lse_part] = attention_forward_cpu(part.wide(q), part.wide(k), part.wide(v), causal, window);
    part.of(out).copy_(out_part);
    part.of(lse).copy_(lse_part);
  }
  return {out, lse};
}

void widened_backward(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads) {
  for (const Part& part : parts_of(trace.q, trace.k)) {
    const Tensor q = part.wide(trace.q), k = part.wide(trace.k), v = part.wide(trace.v);
    const Tensor out = part.wide(trace.out), g = part.wide(grad), lse = part.of(trace.lse);
    const auto made = attention_backward_cpu(g, {q, k, v, out, lse, trace.causal, trace.window});
    for (size_t i = 0; i < 3; ++i) part.of(grads[i]).copy_(made[i]);
  }
}

bool has_float_kernels(int64_t head_dim) {
  const std::string_view set = kernels::instruction_set();
  return (set == "AVX-512" || set == "AVX2") && head_dim % 16 == 0;
}

}  // namespace

bool has_attention_kernels(const Tensor& q) {
  if (!on_cpu(q)) return false;
  if (q.scalar_type() == at::kBFloat16) {
    return kernels::instruction_set() == std::string_view("AVX-512") && q.size(3) % 32 == 0 && !widens(q);
  }
  return q.scalar_type() == at::kFloat && has_float_kernels(q.size(3));
}

bool has_kernels_for_past(const Tensor& q) {
  return has_attention_kernels(q) || (on_cpu(q) && widens(q) && has_float_kernels(q.size(3)));
}

std::pair<Tensor, Tensor> attention_forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                                                int64_t window) {
  if (widens(q)) return widened_forward(q, k, v, causal, window);
  const int64_t queries = q.size(2), keys = k.size(2);
  const bool past = causal && keys > queries;
  const bool own = has_attention_kernels(q) && (queries >= kLeastQueries || past) && keys > 0;
  const bool bands = window > 0 && on_cpu(q) && !own;
  if (!q.is_meta() && !own && !bands) {
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
    return {std::move(out), std::move(lse)};
  }
  const Tensor out = empty_heads(q);
  const Tensor lse = at::empty({q.size(0), queries, q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2);
  if (own || bands) {
    (own ? forward_heads : forward_bands)({q, k, v, out, lse, causal, window});
    return {out, lse};
  }
  // LibTorch's working memory: a tile of scores, its statistics and a tile of the result for each thread.
  const int64_t q_tile = std::min<int64_t>(queries, queries >= 768 ? 256 : queries >= 192 ? 64 : 32);
  const int64_t tile = q_tile * (std::min<int64_t>(keys, 512) + 2 + q.size(3));
  const Tensor working = at::empty({at::get_num_threads(), tile}, lse.options());
  return {out, lse};
}

std::array<Tensor, 3> attention_backward_cpu(const Tensor& grad, const AttentionTrace& trace) {
  const bool own = has_attention_kernels(trace.q), bands = trace.window > 0 && on_cpu(trace.q);
  std::array<Tensor, 3> grads;
  if (!trace.q.is_meta() && !widens(trace.q) && !own && !bands) {
    std::tie(grads[0], grads[1], grads[2]) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        grad, trace.q, trace.k, trace.v, trace.out, trace.lse, /*dropout_p=*/0.0, trace.causal);
    return grads;
  }
  grads = {empty_heads(trace.q), empty_heads(trace.k), empty_heads(trace.v)};
  if (widens(trace.q)) {
    widened_backward(grad, trace, grads);
  } else if (own) {
    backward_heads(grad, trace, grads);
  } else if (bands) {
    backward_bands(grad, trace, grads);
  }
  return grads;
}

}  // namespace lockstep::fn
