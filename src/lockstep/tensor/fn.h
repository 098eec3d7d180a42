// Every op a model uses, with shapes. The one place that includes <ATen/ops/…> for models.
//
// B batch, T query tokens, S key tokens, D model, N query heads, K kv heads, H head size, F mlp, V vocab.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/spec.h"

namespace lockstep::fn {

/// x[..., in] * w[out, in]^T (+ b[out]).
Tensor linear(const Tensor& x, const Tensor& w);
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b);
/// sum + linear(x, w); where nothing is recorded for a gradient, on a GPU, in one kernel and where `sum` stands: nobody else may
/// need it.
Tensor add_linear(const Tensor& sum, const Tensor& x, const Tensor& w);
/// Zeros in the place of linear's result, with its gradients: for a forward pass that is repeated for these alone.
Tensor linear_without_value(const Tensor& x, const Tensor& w, const std::optional<Tensor>& b);

/// Where a low-rank product goes: columns [first, first + count) of an output get scale * h_r * B^T, B [count, rank] from
/// element `begin` of a flat tensor of several. Ranks of parts stand behind one another in h.
struct LowRankPart {
  int64_t first = 0, count = 0, rank = 0, begin = 0;
  double scale = 1;
};
/// y[.., out] += what the parts make of h = x[.., in] * a[R, in]^T, R the sum of their ranks; b flat. y is written where it
/// stands: nobody else may need it. a and b may be of another dtype than x, in which everything is computed.
Tensor add_low_rank(const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b,
                    const std::vector<LowRankPart>& parts);
/// w [out, in] and its bias, if it has one; without value, as linear_without_value().
struct AdaptedMatrix {
  const Tensor& w;
  const Tensor* bias = nullptr;
  bool valued = true;
};
/// linear(), and what add_low_rank() adds to it.
Tensor adapted_linear(const Tensor& x, const AdaptedMatrix& matrix, const Tensor& a, const Tensor& b,
                      const std::vector<LowRankPart>& parts);
/// Of several adapters over one matrix: what add_low_rank takes of each, and the rows of x that are computed with it.
struct LowRankOfRows {
  const Tensor &a, &b;
  const std::vector<LowRankPart>& parts;
  const Tensor& rows;  // [x.size(0)] bool
};
/// The same of the rows of each, in one product for all. Nothing is recorded for a gradient.
void add_low_rank_of_rows(const Tensor& y, const Tensor& x, const std::vector<LowRankOfRows>& all);
/// Norms (f32) of the rows of w [out, in] + what the parts add to it, of the rows that are in a part, part after part; no
/// gradient.
Tensor low_rank_row_norms(const Tensor& w, const Tensor& a, const Tensor& b, const std::vector<LowRankPart>& parts);

/// x[.., I] with each number zero with probability `p`, all others scaled by 1 / (1 - p). Which are is decided by `keys`
/// and where a number stands: x's numbers are cut evenly among the keys (a row of the batch each). The same bits on
/// every device, at any time.
Tensor dropout(const Tensor& x, double p, const std::vector<uint64_t>& keys);

/// Root mean square norm over the last dim, statistics in float32. Source: transformers Qwen2RMSNorm.
Tensor rms_norm(const Tensor& x, const Tensor& w, double eps);
/// {x + y, rms_norm() of it}: where nothing is recorded for a gradient, in one kernel on a GPU.
std::pair<Tensor, Tensor> add_and_norm(const Tensor& x, const Tensor& y, const Tensor& w, double eps);
Tensor layer_norm(const Tensor& x, const Tensor& w, const Tensor& b, double eps);

/// silu(gate) * up of a fused [.., 2F] whose first half is the gate; -> [.., F].
Tensor swiglu(const Tensor& gate_up);
/// "gelu", "gelu_pytorch_tanh", "gelu_new", "quick_gelu", "silu", "relu". Throws UserError(kCheckpoint) with the list.
Tensor activation(std::string_view name, const Tensor& x);

/// Token rows of a table: ids [..] i64 -> [.., D].
Tensor embedding(const Tensor& ids, const Tensor& table);

/// Inverse frequencies -> cos, sin [.., T, H] float32-exact, then dtype. positions [B,T] or [T].
std::pair<Tensor, Tensor> rope_tables(const Tensor& positions, const Tensor& inverse_frequencies, double scaling,
                                      Dtype dtype);
/// Rotates halves of x[B,T,N,H] (or a strided view of it) by tables cos, sin [B or 1, T, H]. Source: transformers
/// apply_rotary_pos_emb.
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin);

/// How a fused projection is cut: N query heads, then K key heads, then K value heads, H elements each.
struct HeadCounts {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};
/// Weights [H] of the root mean square norm of each query head, and of each key head.
struct HeadNorms {
  const Tensor &q, &k;
  double eps;
};
/// qkv [.., (N+2K)*H] with its query and key heads normed. Source: transformers Qwen3Attention.
Tensor norm_heads(const Tensor& qkv, HeadCounts counts, const HeadNorms& norms);
/// qkv [B,T,(N+2K)*H] -> {q, k, v}: q [B,N,T,H], k and v [B,K,T,H], q and k rotated by cos, sin [B or 1, T, H] f32.
/// `repeat_kv`: k and v may come back with N heads, where the device's attention wants them so (CPU).
std::array<Tensor, 3> split_heads(const Tensor& qkv, const Tensor& cos, const Tensor& sin, HeadCounts counts,
                                  bool repeat_kv);
/// The same before it is cut, of one token a row: T is 1.
struct FusedHeads {
  const Tensor &qkv, &cos, &sin;
  HeadCounts counts;
};
/// [B,N,T,H] -> [B,T,N*H].
Tensor merge_heads(const Tensor& x);

struct AttentionOptions {
  bool causal = false;
  int64_t window = 0;                // where causal: a query looks at so many keys at most, its own the last; 0: all
  const Tensor* mask = nullptr;      // [B,1,T,S] bool, true = may look
  const Tensor* row_ends = nullptr;  // [R] i64 on the host: rows stand behind one another in T, each looks at itself
};
/// q [B,N,T,H], k, v [B,K,S,H] (K divides N) -> [B,N,T,H]. Scale 1/sqrt(H). A row that may look nowhere gives zeros.
/// Causal with S > T: the queries are the last T of the S tokens.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options);

/// What a row has said so far: keys, values [K, room, H], of which [first, length) count; length 0: no row is there.
struct CachedRow {
  const Tensor *keys = nullptr, *values = nullptr;
  int64_t length = 0, first = 0;
};
/// k, v [R,K,1,H] become the last token of each row, which has room for it.
void keep_token(const Tensor& k, const Tensor& v, std::span<const CachedRow> rows);
/// One query a row: q [R,N,1,H] -> [R,N,1,H]; zeros where no row is. A row's result depends on that row alone.
Tensor cached_attention(const Tensor& q, std::span<const CachedRow> rows);

/// A fused bias [3D] of q, k and v whose k part passes no gradient. Softmax does not change when all keys move alike,
/// so that gradient is zero in mathematics; in floating point it is noise, which Adam would turn into whole steps.
Tensor constant_key_bias(const Tensor& qkv_bias);

/// What is added to logits: h [R,r] * b[V,r]^T.
struct LowRankLogits {
  const Tensor &h, &b;
};
/// Summed cross entropy of hidden[R,D] * w[V,D]^T against targets[R] (-100 ignored), times `weight`, without ever
/// holding R*V logits: `chunk` rows at a time, on a GPU four times as many. Returns {loss f32 scalar, number of argmax hits i64 scalar}.
/// `smoothing`: this part of each label is spread over the vocabulary, as transformers' LabelSmoother has it.
/// Differentiable in hidden, w and what is added; the gradients are made in the forward pass, when wanted. Source: same mathematics as
/// torch cross_entropy in float32.
std::pair<Tensor, Tensor> chunked_cross_entropy(const Tensor& hidden, const Tensor& w, const Tensor& targets,
                                                double weight, int64_t chunk,
                                                const std::optional<LowRankLogits>& low = std::nullopt,
                                                double smoothing = 0);

/// hidden[B*T rows] with rows `index` replaced by `media` rows; differentiable in both. hidden [B,T,D], media [.., D],
/// index [M].
Tensor scatter_rows(const Tensor& hidden, const Tensor& media, const Tensor& index);

/// Non-overlapping patches: pixels [N,C,h,w] -> [N, patches, C*P*P]. Times a flattened kernel [D,C,P,P] it is a
/// convolution at stride P.
Tensor patches_of(const Tensor& pixels, int64_t patch);

}  // namespace lockstep::fn
