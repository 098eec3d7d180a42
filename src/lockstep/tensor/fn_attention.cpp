// B batch, N query heads, K kv heads, T queries, S keys, H head size.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include <ATen/Context.h>
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/attention_bands.h"
#include "lockstep/tensor/attention_cpu.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

Tensor with_rows(const Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

/// A rehearsal of a GPU takes the CPU's attention for the one kernel that it is there.
std::pair<Tensor, Tensor> forward_of(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, int64_t window) {
  auto made = attention_forward_cpu(q, k, v, causal, window);
  if (q.is_meta()) gpu::tell_hollow(causal ? "causal_attention" : "attention", {q, k, v, made.first});
  return made;
}

/// Attention as attention_cpu has it, forward and backward.
class CpuAttention final : public Function<CpuAttention> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v, bool causal,
                        int64_t window) {
    const auto [out, lse] = forward_of(q, k, v, causal, window);
    ctx->save_for_backward({q, k, v, out, lse});
    ctx->saved_data["causal"] = causal;
    ctx->saved_data["window"] = window;
    return out;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const auto made = attention_backward_cpu(
        with_rows(grads[0]), {saved[0], saved[1], saved[2], saved[3], saved[4], ctx->saved_data["causal"].toBool(),
                              ctx->saved_data["window"].toInt()});
    if (grads[0].is_meta()) {
      gpu::tell_hollow(ctx->saved_data["causal"].toBool() ? "causal_attention_backward" : "attention_backward",
                       {saved[0], saved[1], saved[2], saved[3], grads[0], made[0], made[1], made[2]});
    }
    return {made[0], made[1], made[2], Tensor(), Tensor()};
  }
};

Tensor repeat_heads(const Tensor& x, int64_t heads) {
  if (x.size(1) == heads) return x;
  const int64_t copies = heads / x.size(1);
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), copies, x.size(2), x.size(3)})
      .reshape({x.size(0), heads, x.size(2), x.size(3)});
}

/// Whether the device has flash attention for these: it then takes rows of any lengths in one call. It pads no heads there.
bool takes_rows_together(const Tensor& q, bool causal) {
  constexpr int64_t kHeadMultiple = 8;
  if (!is_gpu(q.device()) || q.size(3) % kHeadMultiple != 0) return false;
  // That keys have fewer heads is no matter there.
  const auto choice = static_cast<at::SDPBackend>(at::_fused_sdp_choice(q, q, q, {}, 0.0, causal));
  return choice == at::SDPBackend::flash_attention || choice == at::SDPBackend::overrideable;
}

/// Whether a device attends with heads of keys and values that each serve a group of queries' heads: flash attention does, in 16
/// bits. LibTorch does it by ops otherwise, with all scores in memory, where its kernel for float32 has none.
bool takes_groups(const Tensor& q, const Tensor& k, const Tensor& v, bool causal) {
  constexpr int64_t kMostHeadDim = 256;
  if (q.is_meta()) return q.scalar_type() != at::kFloat && q.size(3) <= kMostHeadDim;
  const auto choice = at::_fused_sdp_choice(q, k, v, {}, 0.0, causal, {}, /*enable_gqa=*/true);
  return static_cast<at::SDPBackend>(choice) != at::SDPBackend::math;
}

/// cuDNN's attention takes half the time of flash attention on GPUs of compute capability 9.0 (H200, 4096 tokens of 28 heads,
/// forward and backward: 0.95 of 1.72 ms), and 150 ms for the first rows of every length: used for lengths that there are few
/// of, as where rows are packed or cut. Not deterministic on the way back. LibTorch, which is passed by here, knows what it
/// supports: of other GPUs than these it is asked.
bool takes_cudnn(const Tensor& q, const Tensor& k) {
  constexpr int kHopper = 90, kBlackwell = 100;
  constexpr int64_t kFewLengths = 256, kShortest = 1024, kMostHeadDim = 128, kHeadMultiple = 8;
  const int64_t tokens = q.size(2), dim = q.size(3);
  const bool half = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  return q.is_cuda() && half && tokens == k.size(2) && tokens >= kShortest && tokens % kFewLengths == 0 &&
         dim % kHeadMultiple == 0 && dim <= kMostHeadDim && !at::globalContext().deterministicAlgorithms() &&
         (gpu::generation_of(q) == kHopper || gpu::generation_of(q) == kBlackwell);
}

/// q, k, v [1,heads,T,H]; `ends`: of the rows in T.
Tensor attention_of_rows_together(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                  std::span<const int64_t> ends) {
  std::vector<int64_t> starts{0};
  int64_t longest = 0;
  for (const int64_t end : ends) {
    longest = std::max(longest, end - starts.back());
    starts.push_back(end);
  }
  const auto count = static_cast<int64_t>(starts.size());
  const Tensor starts_R1 = from_values(std::span<const int64_t>(starts), {count}).to(at::kInt);
  std::optional<int64_t> back, forth;
  if (options.window > 0 && options.window < longest) {
    back = options.window - 1;
    forth = 0;
  }
  const Tensor there = sent_to(starts_R1, q.device());
  const auto tokens_first = [](const Tensor& x_1NTH) { return x_1NTH.select(0, 0).transpose(0, 1); };
  const Tensor out_TNH = std::get<0>(at::_flash_attention_forward(
      tokens_first(q), tokens_first(k), tokens_first(v), there, there, longest, longest, 0.0, options.causal,
      /*return_debug_mask=*/false, /*scale=*/{}, back, forth));
  return out_TNH.transpose(0, 1).unsqueeze(0);
}

/// Rows behind one another, as one tensor and one call for rows of one length that follow each other.
Tensor attention_of_rows(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  check(q.size(0) == 1 && k.size(2) == q.size(2), "attention: rows behind one another are a batch of one");
  const auto* end = options.row_ends->const_data_ptr<int64_t>();
  const int64_t count = options.row_ends->size(0);
  if (count > 1 && takes_rows_together(q, options.causal)) {
    return attention_of_rows_together(q, k, v, options, {end, static_cast<size_t>(count)});
  }
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t i = 0; i < count;) {
    const int64_t length = end[i] - begin;
    int64_t same = 1;
    while (i + same < count && end[i + same] - end[i + same - 1] == length) ++same;
    const auto rows_RNLH = [&](const Tensor& x_1NTH) {
      return x_1NTH.select(0, 0).narrow(1, begin, same * length).unflatten(1, {same, length}).transpose(0, 1);
    };
    const Tensor out_RNLH =
        attention(rows_RNLH(q), rows_RNLH(k), rows_RNLH(v), {.causal = options.causal, .window = options.window});
    parts.push_back(out_RNLH.transpose(1, 2).flatten(0, 1));
    begin += same * length;
    i += same;
  }
  const Tensor out_TNH = parts.size() == 1 ? parts.front() : at::cat(parts, 0);
  return out_TNH.unsqueeze(0).transpose(1, 2);
}

/// As many queries as keys where LibTorch is to do it all: by a device's flash attention, which knows windows, as rows behind
/// one another; where it does not take them, some queries at a time.
Tensor windowed_by_torch(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window) {
  const int64_t rows = q.size(0), tokens = q.size(2);
  if (takes_rows_together(q, /*causal=*/true)) {
    const auto joined = [&](const Tensor& x_BNTH) {
      return x_BNTH.transpose(1, 2).flatten(0, 1).unsqueeze(0).transpose(1, 2);
    };
    std::vector<int64_t> ends;
    for (int64_t i = 1; i <= rows; ++i) ends.push_back(i * tokens);
    const Tensor out_1NTH =
        attention_of_rows_together(joined(q), joined(k), joined(v), {.causal = true, .window = window}, ends);
    return out_1NTH.select(0, 0).unflatten(1, {rows, tokens}).transpose(0, 1);
  }
  constexpr int64_t kQueries = 1024;
  const BandMask mask(window, std::min(kQueries, tokens), q);
  const Tensor k_BNSH = repeat_heads(k, q.size(1)), v_BNSH = repeat_heads(v, q.size(1));
  std::vector<Tensor> parts;
  for (const Band& band : bands_of(tokens, window, kQueries)) {
    parts.push_back(at::scaled_dot_product_attention(q.narrow(2, band.query, band.queries),
                                                     k_BNSH.narrow(2, band.key, band.keys),
                                                     v_BNSH.narrow(2, band.key, band.keys), mask.of(band)));
  }
  return at::cat(parts, 2);
}

/// As many queries as keys and causal, or not causal: what has kernels.
Tensor plain_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, int64_t window) {
  const bool hollow = q.is_meta();
  if (window > 0 && !hollow && !(q.is_cpu() && is_element(q))) return windowed_by_torch(q, k, v, window);
  if (takes_cudnn(q, k)) {
    const bool records = at::GradMode::is_enabled() && q.requires_grad();
    return std::get<0>(at::_scaled_dot_product_cudnn_attention(q, k, v, {}, records, 0.0, causal));
  }
  const bool repeats = k.size(1) != q.size(1) && (on_cpu(q) || !takes_groups(q, k, v, causal));
  const auto of_heads = [&](const Tensor& x) { return repeats ? repeat_heads(x, q.size(1)) : x; };
  if (!q.is_cpu() && !hollow) {
    return at::scaled_dot_product_attention(q, of_heads(k), of_heads(v), {}, 0.0, causal, {},
                                            k.size(1) != q.size(1) && !repeats);
  }
  // What is kept is the same on every device, but for heads that are not repeated.
  const auto with_heads = [&](const Tensor& x) { return with_rows(of_heads(x)); };
  const Tensor q_BNTH = with_rows(q), k_BNSH = with_heads(k), v_BNSH = with_heads(v);
  if (!hollow && !widens(q) && !has_attention_kernels(q) && window == 0)
    return at::scaled_dot_product_attention(q_BNTH, k_BNSH, v_BNSH, {}, 0.0, causal);
  const bool records = at::GradMode::is_enabled() && q.requires_grad();
  if (records) return CpuAttention::apply(q_BNTH, k_BNSH, v_BNSH, causal, window);
  return forward_of(q_BNTH, k_BNSH, v_BNSH, causal, window).first;
}

/// Of hollow tensors: what LibTorch keeps of a mask for the way back, numbers that it adds to the scores.
class HeldMask final : public Function<HeldMask> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& out, const Tensor& added) {
    ctx->save_for_backward({added});
    return out.clone();
  }
  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    (void)ctx->get_saved_variables();
    return {grads[0].clone(), Tensor()};
  }
};

/// Rows that may look nowhere look everywhere instead, and their result is cleared: no NaN, forward or backward.
Tensor masked_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask_B1TS) {
  if (widens(q)) {
    return masked_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), mask_B1TS).to(q.scalar_type());
  }
  if (q.is_meta()) {  // what is made here and within: the mask with its blind rows, and as numbers
    const Tensor seen_B1TS = q.new_empty(mask_B1TS.sizes(), at::kBool), added_B1TS = q.new_empty(mask_B1TS.sizes());
    return HeldMask::apply(plain_attention(q, k, v, /*causal=*/false, 0), added_B1TS);
  }
  const Tensor blind_B1T1 = mask_B1TS.any(-1, /*keepdim=*/true).eq(false);
  const Tensor seen_B1TS = mask_B1TS.bitwise_or(blind_B1T1);
  return at::scaled_dot_product_attention(q, k, v, seen_B1TS).masked_fill(blind_B1T1, 0.0);
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  check(options.window >= 0 && (options.window == 0 || options.causal), "attention: a window looks back");
  if (options.row_ends != nullptr) return attention_of_rows(q, k, v, options);
  const int64_t queries = q.size(2), keys = k.size(2);
  const int64_t window = options.window < keys ? options.window : 0;
  const bool causal = options.causal && (queries > 1 || window > 0);
  const bool triangle = causal && queries == keys;  // what the kernels call causal
  if (options.mask == nullptr && (triangle || !causal)) return plain_attention(q, k, v, triangle, window);
  if (options.mask == nullptr && window > 0 && keys > queries + window - 1) {  // what the first query does not see
    const int64_t seen = queries + window - 1;
    return attention(q, k.narrow(2, keys - seen, seen), v.narrow(2, keys - seen, seen), options);
  }
  const bool records = at::GradMode::is_enabled() && q.requires_grad();
  if (options.mask == nullptr && !records && has_kernels_for_past(q)) {
    const auto rows_of = [&](const Tensor& x) { return with_rows(widens(q) ? repeat_heads(x, q.size(1)) : x); };
    return attention_forward_cpu(with_rows(q), rows_of(k), rows_of(v), causal, window).first;
  }
  Tensor mask;
  if (causal) {
    mask = at::ones({1, 1, queries, keys}, q.options().dtype(at::kBool)).tril(keys - queries);
    if (window > 0) mask.triu_(keys - queries - window + 1);
    if (options.mask != nullptr) mask = mask.bitwise_and(*options.mask);
  } else {
    mask = *options.mask;
  }
  return masked_attention(q, repeat_heads(k, q.size(1)), repeat_heads(v, q.size(1)), mask);
}

void keep_token(const Tensor& k, const Tensor& v, std::span<const CachedRow> rows) {
  check(k.dim() == 4 && k.size(2) == 1 && v.sizes() == k.sizes() && k.size(0) == static_cast<int64_t>(rows.size()),
        "one token a row");
  // An op of LibTorch takes longer than what it copies.
  const bool by_hand = has_kernels(k) && !k.is_meta() && k.is_contiguous() && v.is_contiguous();
  const auto bytes = static_cast<size_t>(k.size(3)) * k.element_size();
  for (size_t r = 0; r < rows.size(); ++r) {
    const CachedRow& row = rows[r];
    if (row.length == 0) continue;
    const auto keep = [&](const Tensor& held, const Tensor& said) {
      if (!by_hand) return void(held.narrow(1, row.length - 1, 1).copy_(said.select(0, static_cast<int64_t>(r))));
      const auto* from = static_cast<const std::byte*>(said.const_data_ptr()) + r * k.size(1) * bytes;
      auto* to = static_cast<std::byte*>(held.mutable_data_ptr()) + (row.length - 1) * bytes;
      for (int64_t head = 0; head < k.size(1); ++head) {
        std::memcpy(to + head * held.size(1) * bytes, from + head * bytes, bytes);
      }
    };
    keep(*row.keys, k);
    keep(*row.values, v);
  }
}

Tensor cached_attention(const Tensor& q, std::span<const CachedRow> rows) {
  const int64_t heads = q.size(1), dim = q.size(3);
  check(q.dim() == 4 && q.size(2) == 1 && q.size(0) == static_cast<int64_t>(rows.size()), "one query a row");
  Tensor out = at::zeros(q.sizes(), q.options());
  if (!has_kernels(q)) {
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].length == 0) continue;
      const auto said = [&](const Tensor& x) {
        return x.narrow(1, rows[r].first, rows[r].length - rows[r].first).unsqueeze(0);
      };
      const auto at = static_cast<int64_t>(r);
      out.narrow(0, at, 1).copy_(attention(q.narrow(0, at, 1), said(*rows[r].keys), said(*rows[r].values), {}));
    }
    return out;
  }
  int64_t kv_heads = 1, longest = 0;
  for (const CachedRow& row : rows) {
    if (row.length > 0) kv_heads = row.keys->size(0);
    longest = std::max(longest, row.length - row.first);
  }
  const int64_t group = heads / kv_heads;
  const Tensor q_RNH = q.reshape({q.size(0), heads, dim}).contiguous();
  with_element(q, [&]<typename T>() {
    kernels::parallel_rows(q.size(0) * kv_heads, grain_of(longest * dim), [&](int64_t begin, int64_t end) {
      std::vector<float> scratch;
      for (int64_t i = begin; i < end; ++i) {
        const CachedRow& row = rows[static_cast<size_t>(i / kv_heads)];
        if (row.length == 0) continue;
        const int64_t from = (i % kv_heads * row.keys->size(1) + row.first) * dim;
        typename kernels::Table<T>::OneQuery query{.q = read_of<T>(q_RNH) + i * group * dim,
                                                   .keys = read_of<T>(*row.keys) + from,
                                                   .values = read_of<T>(*row.values) + from,
                                                   .out = write_of<T>(out) + i * group * dim,
                                                   .scratch = nullptr,
                                                   .group = group,
                                                   .length = row.length - row.first,
                                                   .dim = dim};
        scratch.resize(static_cast<size_t>(query.scratch_floats()));
        query.scratch = scratch.data();
        kernels::table<T>().attend_one(query);
      }
    });
  });
  return out;
}

Tensor constant_key_bias(const Tensor& qkv_bias) {
  const auto thirds = qkv_bias.chunk(3);
  return at::cat({thirds[0], thirds[1].detach(), thirds[2]});
}

}  // namespace lockstep::fn
