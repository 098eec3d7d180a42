// T queries, S keys, H head size; Tp, Sp rounded up to whole steps. What is turned lies block by block, so that a product's
// strides, and with them the kernels that are made for it, do not depend on T and S.
#include "lockstep/tensor/attention_heads.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUBlas.h>
#include <ATen/ops/empty.h>

#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/kernels.h"

namespace lockstep::fn {
namespace {

using at::native::cpublas::brgemm;
using kernels::Bf16;

constexpr int64_t kKeys = 64;      // keys a tile
constexpr int64_t kQueries = 128;  // queries a tile; the last of either kind may have fewer, whole steps
constexpr float kNever = 1e30F;    // as a log-sum: every probability is zero

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

/// The working memory of one thread, cut up one piece behind the other.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}  // null: how much there must be

  template <typename T>
  T* take(int64_t count) {
    constexpr int64_t kLine = 64;
    std::byte* const piece = memory_ == nullptr ? nullptr : memory_ + taken_;
    taken_ += (count * static_cast<int64_t>(sizeof(T)) + kLine - 1) / kLine * kLine;
    return reinterpret_cast<T*>(piece);
  }
  int64_t taken() const { return taken_; }

 private:
  std::byte* memory_;
  int64_t taken_ = 0;
};

/// Sizes of a head, and how its rows are laid out for the matrix units.
template <typename T>
class Head {
 protected:
  static constexpr int64_t kPair = 4 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kStep = 16 * kPair;  // what the vectors and matrix units take at once

  explicit Head(const AttentionTrace& trace)
      : T_(trace.q.size(2)),
        S_(trace.k.size(2)),
        H_(trace.q.size(3)),
        Tp_(up_to(T_, kStep)),
        Sp_(up_to(S_, kStep)),
        past_(trace.causal ? S_ - T_ : 0),
        causal_(trace.causal),
        window_(trace.window > 0 ? trace.window : kernels::TileShape::kNoWindow) {}

  int64_t keys_from(int64_t s0) const { return std::min(kKeys, Sp_ - s0); }
  int64_t queries_from(int64_t t0) const { return std::min(kQueries, Tp_ - t0); }

  kernels::TileShape tile(int64_t s0, int64_t t0) const {
    return {.keys = keys_from(s0),
            .queries = queries_from(t0),
            .key_limit = S_ - s0,
            .diagonal = past_ + t0 - s0,
            .causal = causal_,
            .window = window_,
            .scale = 1.0F / std::sqrt(static_cast<float>(H_))};
  }

  /// Rows behind one another, zeros up to the whole step.
  void copy_rows(HeadView<T> from, T* to, int64_t rows, int64_t padded) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(from.data + r * from.stride, H_, to + r * H_);
    std::fill(to + rows * H_, to + padded * H_, T{});
  }

  /// [n, H] -> [H, n], bf16 paired by rows.
  void turn(const T* rows, T* turned, int64_t n) {
    table_.transpose_words(reinterpret_cast<const uint32_t*>(rows), H_ / kPair, reinterpret_cast<uint32_t*>(turned), n,
                           n, H_ / kPair);
  }

  /// [n, H] -> [H, n] in plain rows; `words` is scratch of the same size.
  void turn_plain(const T* rows, T* turned, int64_t n, T* words) {
    turn(rows, words, n);
    table_.unpair_rows(reinterpret_cast<const uint32_t*>(words), turned, H_ / kPair, n);
  }

  const kernels::Table<T>& table_ = kernels::table<T>();
  int64_t T_, S_, H_, Tp_, Sp_;
  int64_t past_;  // keys before the first query's own, where causal
  bool causal_;
  int64_t window_;
};

template <typename T>
class HeadForward : Head<T> {
  using Base = Head<T>;
  using Base::T_, Base::S_, Base::H_, Base::Tp_, Base::Sp_, Base::past_, Base::causal_, Base::window_, Base::table_;

 public:
  HeadForward(const AttentionTrace& trace, Pieces& pieces)
      : Base(trace),
        k_(pieces.take<T>(Sp_ * H_)),
        v_turned_(pieces.take<T>(Sp_ * H_)),
        rows_(pieces.take<T>(kQueries * H_)),
        turned_(pieces.take<T>(kQueries * H_)),
        probs_(pieces.take<T>(kKeys * kQueries)),
        scores_(pieces.take<float>(kKeys * kQueries)),
        sums_of_values_(pieces.take<float>(kQueries * H_)),
        most_(pieces.take<float>(kQueries)),
        sums_(pieces.take<float>(kQueries)),
        factors_(pieces.take<float>(kQueries)) {}

  void run(const AttentionTrace& trace, int64_t b, int64_t n) {
    pack(trace, b, n);
    const auto q = head_of<T>(trace.q, b, n), out = head_of<T>(trace.out, b, n);
    auto* lse = head_of<float>(trace.lse, b, n).data;
    const int64_t lse_stride = trace.lse.stride(2);
    for (int64_t t0 = 0; t0 < T_; t0 += kQueries) {
      const int64_t rows = std::min(kQueries, T_ - t0), nq = Base::queries_from(t0);
      Base::copy_rows({q.data + t0 * q.stride, q.stride}, rows_, rows, nq);
      Base::turn(rows_, turned_, nq);
      query_block(t0, nq);
      for (int64_t t = 0; t < nq; ++t) factors_[t] = 1.0F / sums_[t];
      table_.scale_columns(sums_of_values_, factors_, H_, nq);
      table_.store_transposed(sums_of_values_, nq, out.data + t0 * out.stride, out.stride, rows, H_);
      for (int64_t t = 0; t < rows; ++t) lse[(t0 + t) * lse_stride] = most_[t] + std::log(sums_[t]);
    }
  }

 private:
  void pack(const AttentionTrace& trace, int64_t b, int64_t n) {
    const int64_t of = n * trace.k.size(1) / trace.q.size(1);
    Base::copy_rows(head_of<T>(trace.k, b, of), k_, S_, Sp_);
    const auto v = head_of<T>(trace.v, b, of);
    for (int64_t s0 = 0; s0 < S_; s0 += kKeys) {
      const int64_t keys = Base::keys_from(s0);
      Base::copy_rows({v.data + s0 * v.stride, v.stride}, rows_, std::min(keys, S_ - s0), keys);
      Base::turn_plain(rows_, v_turned_ + s0 * H_, keys, turned_);
    }
  }

  /// Values weighed and summed for nq queries, over all keys that they see.
  void query_block(int64_t t0, int64_t nq) {
    std::fill_n(most_, nq, -kNever);
    std::fill_n(sums_, nq, 0.0F);
    const int64_t end = causal_ ? std::min(S_, past_ + t0 + nq) : S_;
    const int64_t begin = causal_ ? std::max<int64_t>(0, past_ + t0 - window_ + 1) / kKeys * kKeys : 0;
    for (int64_t s0 = begin; s0 < end; s0 += kKeys) {
      const int64_t keys = Base::keys_from(s0);
      multiply({keys, nq, H_, H_, nq, nq, false}, k_ + s0 * H_, turned_, scores_);
      const bool grown = table_.softmax_tile({.scores = scores_,
                                              .most = most_,
                                              .sums = sums_,
                                              .shrink = factors_,
                                              .probs = probs_,
                                              .shape = Base::tile(s0, t0)});
      if (grown && s0 > begin) table_.scale_columns(sums_of_values_, factors_, H_, nq);
      multiply({H_, nq, keys, keys, nq, nq, s0 > begin}, v_turned_ + s0 * H_, probs_, sums_of_values_);
    }
  }

  T *k_, *v_turned_, *rows_, *turned_, *probs_;
  float *scores_, *sums_of_values_, *most_, *sums_, *factors_;
};

template <typename T>
class HeadBackward : Head<T> {
  using Base = Head<T>;
  using Base::T_, Base::S_, Base::H_, Base::Tp_, Base::Sp_, Base::causal_, Base::window_, Base::kPair, Base::table_;

 public:
  HeadBackward(const AttentionTrace& trace, Pieces& pieces)
      : Base(trace),
        k_(pieces.take<T>(Sp_ * H_)),
        v_(pieces.take<T>(Sp_ * H_)),
        k_turned_(pieces.take<T>(Sp_ * H_)),
        words_(pieces.take<T>(kKeys * H_)),
        rows_(pieces.take<T>(Tp_ * H_)),
        q_turned_(pieces.take<T>(Tp_ * H_)),
        g_turned_(pieces.take<T>(Tp_ * H_)),
        q_paired_(pieces.take<T>(Tp_ * H_)),
        g_paired_(pieces.take<T>(Tp_ * H_)),
        probs_(pieces.take<T>(kKeys * kQueries)),
        dscores_(pieces.take<T>(kKeys * kQueries)),
        dscores_paired_(pieces.take<T>(kKeys * kQueries)),
        lse_(pieces.take<float>(Tp_)),
        dots_(pieces.take<float>(Tp_)),
        dq_turned_(pieces.take<float>(Tp_ * H_)),
        dk_(pieces.take<float>(kKeys * H_)),
        dv_(pieces.take<float>(kKeys * H_)),
        scores_(pieces.take<float>(kKeys * kQueries)),
        dprobs_(pieces.take<float>(kKeys * kQueries)) {}

  void run(const AttentionTrace& trace, const Tensor& grad, const std::array<Tensor, 3>& grads, int64_t b, int64_t n) {
    pack(trace, grad, b, n);
    std::fill_n(dq_turned_, Tp_ * H_, 0.0F);
    const auto dk = head_of<T>(grads[1], b, n), dv = head_of<T>(grads[2], b, n);
    for (int64_t s0 = 0; s0 < S_; s0 += kKeys) {
      key_block(s0, Base::keys_from(s0));
      const int64_t rows = std::min(kKeys, S_ - s0);
      table_.store_rows(dk_, dk.data + s0 * dk.stride, dk.stride, rows, H_);
      table_.store_rows(dv_, dv.data + s0 * dv.stride, dv.stride, rows, H_);
    }
    const auto dq = head_of<T>(grads[0], b, n);
    for (int64_t t0 = 0; t0 < T_; t0 += kQueries) {
      table_.store_transposed(dq_turned_ + t0 * H_, Base::queries_from(t0), dq.data + t0 * dq.stride, dq.stride,
                              std::min(kQueries, T_ - t0), H_);
    }
  }

 private:
  void pack(const AttentionTrace& trace, const Tensor& grad, int64_t b, int64_t n) {
    Base::copy_rows(head_of<T>(trace.k, b, n), k_, S_, Sp_);
    Base::copy_rows(head_of<T>(trace.v, b, n), v_, S_, Sp_);
    for (int64_t s0 = 0; s0 < S_; s0 += kKeys) {
      Base::turn_plain(k_ + s0 * H_, k_turned_ + s0 * H_, Base::keys_from(s0), words_);
    }
    Base::copy_rows(head_of<T>(trace.q, b, n), rows_, T_, Tp_);
    turn_queries(q_turned_);
    table_.pair_rows(rows_, H_, q_paired_, Tp_, H_);
    const auto g = head_of<T>(grad, b, n), out = head_of<T>(trace.out, b, n);
    Base::copy_rows(g, rows_, T_, Tp_);
    turn_queries(g_turned_);
    table_.pair_rows(rows_, H_, g_paired_, Tp_, H_);
    std::fill_n(dots_, Tp_, 0.0F);
    table_.row_dots(g.data, g.stride, out.data, out.stride, dots_, T_, H_);
    std::fill_n(lse_, Tp_, kNever);
    const auto lse = head_of<float>(trace.lse, b, n);
    for (int64_t t = 0; t < T_; ++t) lse_[t] = lse.data[t * lse.stride];
  }

  void turn_queries(T* turned) {
    for (int64_t t0 = 0; t0 < T_; t0 += kQueries) {
      Base::turn(rows_ + t0 * H_, turned + t0 * H_, Base::queries_from(t0));
    }
  }

  /// Gradients of the block's keys and values over all queries that see them; adds to those queries' gradients.
  void key_block(int64_t s0, int64_t keys) {
    const int64_t first = causal_ ? s0 / kQueries * kQueries : 0;
    const int64_t end = causal_ ? std::min(Tp_, s0 + kKeys - 1 + window_) : Tp_;
    bool add = false;
    for (int64_t t0 = first; t0 < end; t0 += kQueries, add = true) {
      const int64_t nq = Base::queries_from(t0);
      const Product scores{keys, nq, H_, H_, nq, nq, false};
      multiply(scores, k_ + s0 * H_, q_turned_ + t0 * H_, scores_);
      multiply(scores, v_ + s0 * H_, g_turned_ + t0 * H_, dprobs_);
      table_.attention_tile({.scores = scores_,
                             .dprobs = dprobs_,
                             .lse = lse_ + t0,
                             .dots = dots_ + t0,
                             .probs = probs_,
                             .dscores = dscores_,
                             .dscores_paired = dscores_paired_,
                             .shape = Base::tile(s0, t0)});
      const Product gradient{keys, H_, nq, nq, H_, H_, add};
      multiply(gradient, probs_, g_paired_ + t0 * H_, dv_);
      multiply(gradient, dscores_, q_paired_ + t0 * H_, dk_);
      multiply({H_, nq, keys, keys, nq, nq, true}, k_turned_ + s0 * H_, kPair == 1 ? dscores_ : dscores_paired_,
               dq_turned_ + t0 * H_);
    }
  }

  T *k_, *v_, *k_turned_, *words_, *rows_, *q_turned_, *g_turned_, *q_paired_, *g_paired_;
  T *probs_, *dscores_, *dscores_paired_;
  float *lse_, *dots_, *dq_turned_, *dk_, *dv_, *scores_, *dprobs_;
};

/// Each head of each row by one thread, on working memory that is counted. HeadWork: HeadForward or HeadBackward.
template <typename HeadWork, typename Run>
void each_head(const AttentionTrace& trace, const Run& run) {
  Pieces needed(nullptr);
  const HeadWork sized(trace, needed);
  const Tensor memory = at::empty({at::get_num_threads(), needed.taken()}, trace.q.options().dtype(at::kByte));
  if (trace.q.is_meta()) return;
  const int64_t heads = trace.q.size(1);
  kernels::parallel_rows(trace.q.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
    Pieces pieces(static_cast<std::byte*>(memory.mutable_data_ptr()) + at::get_thread_num() * needed.taken());
    HeadWork head(trace, pieces);
    for (int64_t i = begin; i < end; ++i) run(head, i / heads, i % heads);
    at::native::cpublas::brgemm_release(trace.q.scalar_type() == at::kBFloat16);
  });
}

template <typename T>
void forward_of(const AttentionTrace& trace) {
  each_head<HeadForward<T>>(trace, [&](HeadForward<T>& head, int64_t b, int64_t n) { head.run(trace, b, n); });
}

template <typename T>
void backward_of(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads) {
  each_head<HeadBackward<T>>(trace,
                             [&](HeadBackward<T>& head, int64_t b, int64_t n) { head.run(trace, grad, grads, b, n); });
}

}  // namespace

void forward_heads(const AttentionTrace& trace) {
  if (trace.q.scalar_type() == at::kFloat) {
    forward_of<float>(trace);
  } else {
    forward_of<Bf16>(trace);
  }
}

void backward_heads(const Tensor& grad, const AttentionTrace& trace, const std::array<Tensor, 3>& grads) {
  if (trace.q.scalar_type() == at::kFloat) {
    backward_of<float>(grad, trace, grads);
  } else {
    backward_of<Bf16>(grad, trace, grads);
  }
}

}  // namespace lockstep::fn
