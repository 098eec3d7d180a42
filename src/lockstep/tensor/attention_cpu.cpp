// T queries, S keys, H head size; Tp, Sp rounded up to whole blocks.
#include "lockstep/tensor/attention_cpu.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>

#include "lockstep/tensor/kernels.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

using at::native::cpublas::brgemm;
using kernels::Bf16;

constexpr int64_t kKeys = 64;      // keys a tile
constexpr int64_t kQueries = 128;  // queries a tile; the last may have 64
constexpr float kNever = 1e30F;    // as a log-sum: every probability is zero

int64_t whole_blocks(int64_t n) { return (n + kKeys - 1) / kKeys * kKeys; }

/// One head of a tensor [B,N,rows,H].
template <typename T>
struct HeadView {
  T* data;
  int64_t stride;  // elements from row to row
};
template <typename T>
HeadView<T> head_of(const Tensor& x, int64_t batch, int64_t head) {
  auto* base = static_cast<T*>(const_cast<void*>(x.const_data_ptr()));
  return {base + batch * x.stride(0) + head * x.stride(1), x.stride(2)};
}

/// c [m,n] (+)= a [m,k] * b [k,n]; b paired by rows where T is bf16.
struct Product {
  int64_t m, n, k, lda, ldb, ldc;
  bool add;
};
void multiply(const Product& p, const float* a, const float* b, float* c) {
  brgemm(p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.add, a, b, c, false);
}
void multiply(const Product& p, const Bf16* a, const Bf16* b, float* c) {
  brgemm(p.m, p.n, p.k, p.lda, p.ldb, p.ldc, p.add, reinterpret_cast<const at::BFloat16*>(a),
         reinterpret_cast<const at::BFloat16*>(b), c, true);
}

/// Buffers and steps for one head at a time; one a thread.
template <typename T>
class HeadBackward {
 public:
  HeadBackward(int64_t queries, int64_t keys, int64_t dim, bool causal)
      : T_(queries), S_(keys), H_(dim), Tp_(whole_blocks(queries)), Sp_(whole_blocks(keys)), causal_(causal) {
    for (auto* rows : {&k_, &v_, &k_turned_}) rows->resize(static_cast<size_t>(Sp_ * H_));
    for (auto* rows : {&rows_, &q_turned_, &g_turned_, &q_paired_, &g_paired_}) {
      rows->resize(static_cast<size_t>(Tp_ * H_));
    }
    words_.resize(static_cast<size_t>(Sp_ * H_));
    lse_.resize(static_cast<size_t>(Tp_));
    dots_.resize(static_cast<size_t>(Tp_));
    dq_turned_.resize(static_cast<size_t>(Tp_ * H_));
    for (auto* rows : {&dk_, &dv_}) rows->resize(static_cast<size_t>(kKeys * H_));
    for (auto* tile : {&scores_, &dprobs_}) tile->resize(kKeys * kQueries);
    for (auto* tile : {&probs_, &dscores_, &dscores_paired_}) tile->resize(kKeys * kQueries);
  }

  void run(const AttentionTrace& trace, const Tensor& grad, const std::array<Tensor, 3>& grads, int64_t b, int64_t n) {
    pack(trace, grad, b, n);
    std::fill(dq_turned_.begin(), dq_turned_.end(), 0.0F);
    const auto dk = head_of<T>(grads[1], b, n), dv = head_of<T>(grads[2], b, n);
    for (int64_t s0 = 0; s0 < S_; s0 += kKeys) {
      key_block(s0);
      const int64_t rows = std::min(kKeys, S_ - s0);
      table_.store_rows(dk_.data(), dk.data + s0 * dk.stride, dk.stride, rows, H_);
      table_.store_rows(dv_.data(), dv.data + s0 * dv.stride, dv.stride, rows, H_);
    }
    const auto dq = head_of<T>(grads[0], b, n);
    table_.store_transposed(dq_turned_.data(), Tp_, dq.data, dq.stride, T_, H_);
  }

 private:
  static constexpr int64_t kPair = 4 / static_cast<int64_t>(sizeof(T));

  /// Rows behind one another, zeros up to the whole block.
  void copy_rows(HeadView<T> from, T* to, int64_t rows, int64_t padded) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(from.data + r * from.stride, H_, to + r * H_);
    }
    std::fill(to + rows * H_, to + padded * H_, T{});
  }

  void turn(const T* rows, T* turned, int64_t padded) {
    table_.transpose_words(reinterpret_cast<const uint32_t*>(rows), H_ / kPair, reinterpret_cast<uint32_t*>(turned),
                           padded, padded, H_ / kPair);
  }

  void pack(const AttentionTrace& trace, const Tensor& grad, int64_t b, int64_t n) {
    copy_rows(head_of<T>(trace.k, b, n), k_.data(), S_, Sp_);
    copy_rows(head_of<T>(trace.v, b, n), v_.data(), S_, Sp_);
    table_.transpose_words(reinterpret_cast<const uint32_t*>(k_.data()), H_ / kPair, words_.data(), Sp_, Sp_,
                           H_ / kPair);
    table_.unpair_rows(words_.data(), k_turned_.data(), H_ / kPair, Sp_);
    copy_rows(head_of<T>(trace.q, b, n), rows_.data(), T_, Tp_);
    turn(rows_.data(), q_turned_.data(), Tp_);
    table_.pair_rows(rows_.data(), H_, q_paired_.data(), Tp_, H_);
    const auto g = head_of<T>(grad, b, n), out = head_of<T>(trace.out, b, n);
    copy_rows(g, rows_.data(), T_, Tp_);
    turn(rows_.data(), g_turned_.data(), Tp_);
    table_.pair_rows(rows_.data(), H_, g_paired_.data(), Tp_, H_);
    std::fill(dots_.begin(), dots_.end(), 0.0F);
    table_.row_dots(g.data, g.stride, out.data, out.stride, dots_.data(), T_, H_);
    std::fill(lse_.begin(), lse_.end(), kNever);
    const auto* lse =
        static_cast<const float*>(trace.lse.const_data_ptr()) + b * trace.lse.stride(0) + n * trace.lse.stride(1);
    for (int64_t t = 0; t < T_; ++t) lse_[static_cast<size_t>(t)] = lse[t * trace.lse.stride(2)];
  }

  /// Gradients of kKeys keys and values over all queries that see them; adds to those queries' gradients.
  void key_block(int64_t s0) {
    const int64_t first = causal_ ? s0 / kQueries * kQueries : 0;
    bool add = false;
    for (int64_t t0 = first; t0 < Tp_; t0 += kQueries, add = true) {
      const int64_t nq = std::min(kQueries, Tp_ - t0);
      const Product scores{kKeys, nq, H_, H_, Tp_, nq, false};
      multiply(scores, k_.data() + s0 * H_, q_turned_.data() + t0 * kPair, scores_.data());
      multiply(scores, v_.data() + s0 * H_, g_turned_.data() + t0 * kPair, dprobs_.data());
      table_.attention_tile({.scores = scores_.data(),
                             .dprobs = dprobs_.data(),
                             .lse = lse_.data() + t0,
                             .dots = dots_.data() + t0,
                             .probs = probs_.data(),
                             .dscores = dscores_.data(),
                             .dscores_paired = dscores_paired_.data(),
                             .keys = kKeys,
                             .queries = nq,
                             .key_limit = S_ - s0,
                             .diagonal = t0 - s0,
                             .causal = causal_,
                             .scale = 1.0F / std::sqrt(static_cast<float>(H_))});
      const Product keys{kKeys, H_, nq, nq, H_, H_, add};
      multiply(keys, probs_.data(), g_paired_.data() + t0 * H_, dv_.data());
      multiply(keys, dscores_.data(), q_paired_.data() + t0 * H_, dk_.data());
      multiply({H_, nq, kKeys, Sp_, nq, Tp_, true}, k_turned_.data() + s0,
               kPair == 1 ? dscores_.data() : dscores_paired_.data(), dq_turned_.data() + t0);
    }
  }

  const kernels::Table<T>& table_ = kernels::table<T>();
  int64_t T_, S_, H_, Tp_, Sp_;
  bool causal_;
  std::vector<T> k_, v_, k_turned_, rows_, q_turned_, g_turned_, q_paired_, g_paired_;
  std::vector<T> probs_, dscores_, dscores_paired_;
  std::vector<uint32_t> words_;
  std::vector<float> lse_, dots_, dq_turned_, dk_, dv_, scores_, dprobs_;
};

template <typename T>
void backward_of(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads) {
  const int64_t heads = trace.q.size(1);
  kernels::parallel_rows(trace.q.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    HeadBackward<T> head(trace.q.size(2), trace.k.size(2), trace.q.size(3), trace.causal);
    for (int64_t i = begin; i < end; ++i) head.run(trace, grad, grads, i / heads, i % heads);
    at::native::cpublas::brgemm_release(sizeof(T) == 2);
  });
}

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

std::pair<Tensor, Tensor> widened_forward(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  const Tensor out = empty_heads(q);
  const Tensor lse = at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2);
  for (const Part& part : parts_of(q, k)) {
    const auto [out_part, lse_part] = attention_forward_cpu(part.wide(q), part.wide(k), part.wide(v), causal);
    part.of(out).copy_(out_part);
    part.of(lse).copy_(lse_part);
  }
  return {out, lse};
}

void widened_backward(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads) {
  for (const Part& part : parts_of(trace.q, trace.k)) {
    const Tensor q = part.wide(trace.q), k = part.wide(trace.k), v = part.wide(trace.v);
    const Tensor out = part.wide(trace.out), g = part.wide(grad), lse = part.of(trace.lse);
    std::array<Tensor, 3> made;
    if (q.is_meta() || has_attention_backward(q)) {
      made = attention_backward_cpu(g, {q, k, v, out, lse, trace.causal});
    } else {
      std::tie(made[0], made[1], made[2]) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          g, q, k, v, out, lse, /*dropout_p=*/0.0, trace.causal);
    }
    for (size_t i = 0; i < 3; ++i) part.of(grads[i]).copy_(made[i]);
  }
}

}  // namespace

bool has_attention_backward(const Tensor& q) {
  if (q.scalar_type() == at::kBFloat16) return q.size(3) % 32 == 0 && at::native::cpublas::could_pack(at::kBFloat16);
  return q.scalar_type() == at::kFloat && q.size(3) % 16 == 0 && kernels::instruction_set() == "AVX-512";
}

std::pair<Tensor, Tensor> attention_forward_cpu(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  if (widens(q)) return widened_forward(q, k, v, causal);
  if (!q.is_meta()) {
    auto [out, lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal);
    return {std::move(out), std::move(lse)};
  }
  // Its working memory: a tile of scores, its statistics and a tile of the result for each thread.
  const int64_t queries = q.size(2), keys = k.size(2);
  const int64_t q_tile = std::min<int64_t>(queries, queries >= 768 ? 256 : queries >= 192 ? 64 : 32);
  const int64_t tile = q_tile * (std::min<int64_t>(keys, 512) + 2 + q.size(3));
  const Tensor out = empty_heads(q);
  const Tensor lse = at::empty({q.size(0), queries, q.size(1)}, q.options().dtype(at::kFloat)).transpose(1, 2);
  const Tensor working = at::empty({at::get_num_threads(), tile}, lse.options());
  return {out, lse};
}

std::array<Tensor, 3> attention_backward_cpu(const Tensor& grad, const AttentionTrace& trace) {
  std::array<Tensor, 3> grads{empty_heads(trace.q), empty_heads(trace.k), empty_heads(trace.v)};
  if (widens(trace.q)) {
    widened_backward(grad, trace, grads);
    return grads;
  }
  if (trace.q.is_meta()) return grads;
  if (trace.q.scalar_type() == at::kFloat) {
    backward_of<float>(grad, trace, grads);
  } else {
    backward_of<Bf16>(grad, trace, grads);
  }
  return grads;
}

}  // namespace lockstep::fn
