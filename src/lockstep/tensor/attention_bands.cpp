// T queries, S keys, H head size.
#include "lockstep/tensor/attention_bands.h"

#include <algorithm>
#include <limits>

#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/base/error.h"

namespace lockstep::fn {
namespace {

/// Queries a band. More of them waste less on the corners of small windows, and look at more that is hidden.
int64_t queries_of(int64_t window) { return std::clamp<int64_t>(window, 64, 256); }

struct Walk {
  explicit Walk(const AttentionTrace& trace)
      : bands(bands_of(trace.q.size(2), trace.window, queries_of(trace.window))),
        mask(trace.window, std::min(queries_of(trace.window), trace.q.size(2)), trace.q) {}

  std::vector<Band> bands;
  BandMask mask;
};

Tensor queries_in(const Tensor& x, const Band& band) { return x.narrow(2, band.query, band.queries); }
Tensor keys_in(const Tensor& x, const Band& band) { return x.narrow(2, band.key, band.keys); }

}  // namespace

std::vector<Band> bands_of(int64_t tokens, int64_t window, int64_t most) {
  std::vector<Band> bands;
  for (int64_t t = 0; t < tokens; t += most) {
    const int64_t queries = std::min(most, tokens - t), key = std::max<int64_t>(0, t - window + 1);
    bands.push_back({t, queries, key, t + queries - key});
  }
  return bands;
}

/// Row i may look at columns i to i + window - 1: column 0 is the first key that the first query of a whole band sees.
BandMask::BandMask(int64_t window, int64_t most, const Tensor& like) : window_(window) {
  const auto closed = [&] {
    return at::full({most, most + window - 1}, -std::numeric_limits<double>::infinity(), like.options());
  };
  whole_ = closed().triu_(window).add_(closed().tril_(-1));
}

Tensor BandMask::of(const Band& band) const {
  const int64_t missing = window_ - 1 - (band.query - band.key);  // keys before the first token
  return whole_.narrow(0, 0, band.queries).narrow(1, missing, band.keys);
}

void forward_bands(const AttentionTrace& trace) {
  check(trace.causal && trace.window > 0 && trace.q.size(2) == trace.k.size(2), "bands: a window over one row");
  const Walk walk(trace);
  for (const Band& band : walk.bands) {
    const Tensor q = queries_in(trace.q, band);
    if (q.is_meta()) {
      const Tensor out = at::zeros(q.sizes(), q.options());
      continue;
    }
    const auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
        q, keys_in(trace.k, band), keys_in(trace.v, band), 0.0, false, walk.mask.of(band));
    queries_in(trace.out, band).copy_(out);
    trace.lse.narrow(2, band.query, band.queries).copy_(lse);
  }
}

void backward_bands(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads) {
  const Walk walk(trace);
  // A key's gradient comes from more than one band: it is summed in float32.
  const Tensor dk = at::zeros(trace.k.sizes(), trace.k.options().dtype(at::kFloat)), dv = at::zeros_like(dk);
  for (const Band& band : walk.bands) {
    const Tensor q = queries_in(trace.q, band), k = keys_in(trace.k, band);
    if (q.is_meta()) {
      const Tensor made[] = {at::zeros(q.sizes(), q.options()), at::zeros(k.sizes(), k.options()),
                             at::zeros(k.sizes(), k.options())};
      continue;
    }
    const auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        queries_in(grad, band), q, k, keys_in(trace.v, band), queries_in(trace.out, band),
        trace.lse.narrow(2, band.query, band.queries), 0.0, false, walk.mask.of(band));
    queries_in(grads[0], band).copy_(gq);
    keys_in(dk, band).add_(gk);
    keys_in(dv, band).add_(gv);
  }
  grads[1].copy_(dk);
  grads[2].copy_(dv);
}

}  // namespace lockstep::fn
