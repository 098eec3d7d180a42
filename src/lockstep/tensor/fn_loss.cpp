// Cross entropy without whole logits. R rows, D model, V vocab, C rows of a chunk.
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

constexpr int64_t kIgnored = -100;
constexpr int64_t kChunksOfGpu = 4;    // as one: the head's gradient is summed in so many fewer passes
constexpr int64_t kRowsTogether = 64;  // kept rows are filled up to a multiple: products of few different sizes

struct ChunkSums {
  Tensor loss, hits;  // f64 and i64 scalars
};

/// Loss of a chunk; `logits_CV` becomes its gradient, weighted, when `grads` is set.
ChunkSums fused_chunk(Tensor& logits_CV, const Tensor& targets_C, double weight, bool grads) {
  const int64_t rows = logits_CV.size(0), vocab = logits_CV.size(1);
  Tensor losses_C = at::empty({rows}, logits_CV.options().dtype(at::kDouble));
  Tensor hits_C = at::empty({rows}, logits_CV.options().dtype(at::kByte));
  if (gpu::has_kernels(logits_CV)) gpu::cross_entropy(logits_CV, targets_C, losses_C, hits_C, weight, grads);
  with_element(logits_CV, [&]<typename T>() {
    T* logits = write_of<T>(logits_CV);
    const auto* targets = read_of<int64_t>(targets_C);
    auto* losses = write_of<double>(losses_C);
    auto* hits = write_of<uint8_t>(hits_C);
    kernels::parallel_rows(rows, grain_of(vocab), [&](int64_t begin, int64_t end) {
      std::vector<float> scratch(static_cast<size_t>(vocab + 16));
      kernels::table<T>().cross_entropy(logits + begin * vocab, targets + begin, losses + begin, hits + begin,
                                        end - begin, vocab, static_cast<float>(weight), grads, scratch.data());
    });
  });
  return {losses_C.sum(), hits_C.sum(at::kLong)};
}

/// The same of LibTorch's ops, for other devices and dtypes, and where labels are smoothed.
ChunkSums composed_chunk(Tensor& logits_CV, const Tensor& given_C, double weight, double smoothing, bool grads) {
  // Labels keep their values in a rehearsal; ops here take none of them beside hollow tensors.
  const Tensor targets_C = logits_CV.is_meta() ? at::empty_like(given_C, given_C.options().device(at::kMeta)) : given_C;
  const Tensor counts_C = targets_C.ne(kIgnored);
  const Tensor target_C1 = targets_C.clamp_min(0).unsqueeze(1);
  const Tensor hits = logits_CV.argmax(1).eq(targets_C).sum();
  Tensor log_probs_CV = at::log_softmax(logits_CV, 1, at::kFloat);
  Tensor said_C = log_probs_CV.gather(1, target_C1).squeeze(1);
  if (smoothing > 0) said_C = said_C.mul(1 - smoothing).add(log_probs_CV.mean(1), smoothing);
  const Tensor loss = said_C.mul(counts_C).sum(at::kDouble).neg();
  if (grads) {
    Tensor d_CV = log_probs_CV.exp_();
    d_CV.scatter_add_(1, target_C1, at::zeros_like(target_C1, d_CV.options()).sub(1.0 - smoothing));
    if (smoothing > 0) d_CV.sub_(smoothing / static_cast<double>(d_CV.size(1)));
    d_CV.mul_(counts_C.unsqueeze(1)).mul_(weight);
    logits_CV.copy_(d_CV);
  }
  return {loss, hits};
}

/// Rows that count, filled up with ignored ones to a multiple of kRowsTogether. Of targets on the host, where counting makes
/// nobody wait.
Tensor rows_that_count(const Tensor& targets_R) {
  const Tensor kept = targets_R.ne(kIgnored).nonzero().squeeze(1);
  const int64_t wanted = (kept.size(0) + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
  if (wanted >= targets_R.size(0)) return {};
  if (wanted == kept.size(0)) return kept;
  const Tensor ignored = targets_R.eq(kIgnored).nonzero().squeeze(1);
  return at::cat({kept, ignored.narrow(0, 0, wanted - kept.size(0))});
}

struct Wanted {
  bool hidden, w, low;
};

class CrossEntropy final : public Function<CrossEntropy> {
 public:
  static Tensors forward(AutogradContext* ctx, const Tensor& hidden_RD, const Tensor& w_VD,
                         const std::optional<Tensor>& low, const std::optional<Tensor>& b, const Tensor& targets_R,
                         double weight, double smoothing, int64_t chunk, Wanted want) {
    const Tensor low_Rr = low.value_or(Tensor()), b_Vr = b.value_or(Tensor());
    const auto there = [&](const Tensor& small) {
      return hidden_RD.is_meta() || !small.defined() ? small : sent_to(small, hidden_RD.device());
    };
    const Tensor counted = targets_R.is_cpu() ? rows_that_count(targets_R) : Tensor(), kept = there(counted);
    const auto chosen = [&](const Tensor& rows) { return kept.defined() ? rows.index_select(0, kept) : rows; };
    const Tensor x_RD = chosen(hidden_RD);
    const Tensor labels_R = there(counted.defined() ? targets_R.index_select(0, counted) : targets_R);
    const Tensor l_Rr = low_Rr.defined() ? chosen(low_Rr) : Tensor();
    const int64_t rows = x_RD.size(0), vocab = w_VD.size(0);
    const bool grads = want.hidden || want.w || want.low;
    Tensor loss = at::zeros({}, x_RD.options().dtype(at::kDouble));
    Tensor hits = at::zeros({}, x_RD.options().dtype(at::kLong));
    Tensor dx_RD = want.hidden ? at::empty_like(x_RD) : Tensor(), dl_Rr = want.low ? at::empty_like(l_Rr) : Tensor();
    Tensor dw_VD, db_Vr;
    const UsedFor chunk_memory(MemoryUse::kLogits);
    const Tensor buffer_CV = at::empty({std::min(rows, chunk), vocab}, x_RD.options());
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const int64_t size = std::min(chunk, rows - begin);
      const auto here = [&](const Tensor& all) { return all.narrow(0, begin, size); };
      const Tensor x_CD = here(x_RD);
      Tensor logits_CV = buffer_CV.narrow(0, 0, size);
      product_into(logits_CV, x_CD, w_VD.t());
      if (l_Rr.defined()) logits_CV.add_(product(here(l_Rr), b_Vr.t()));
      const bool fused = smoothing == 0 && (has_kernels(x_RD) || gpu::has_kernels(x_RD));
      const auto sums = fused ? fused_chunk(logits_CV, here(labels_R), weight, grads)
                              : composed_chunk(logits_CV, here(labels_R), weight, smoothing, grads);
      loss.add_(sums.loss);
      hits.add_(sums.hits);
      if (want.hidden) here(dx_RD).copy_(product(logits_CV, w_VD));
      if (want.w) add_product(dw_VD, logits_CV, x_CD, rows > chunk);
      if (!want.low) continue;
      here(dl_Rr).copy_(product(logits_CV, b_Vr));
      add_product(db_Vr, logits_CV, here(l_Rr), rows > chunk);
    }
    const UsedFor gradient_memory(MemoryUse::kGradients);
    const auto finished = [](bool wanted, const Tensor& made, const Tensor& like) {
      if (!wanted) return Tensor();
      return made.defined() ? made.to(like.scalar_type()) : at::zeros_like(like);
    };
    ctx->saved_data["dx"] = scattered(dx_RD, kept, hidden_RD);
    ctx->saved_data["dw"] = finished(want.w, dw_VD, w_VD);
    ctx->saved_data["dl"] = scattered(dl_Rr, kept, low_Rr);
    ctx->saved_data["db"] = finished(want.low, db_Vr, b_Vr);
    return {loss.mul(weight).to(at::kFloat), hits};
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto made = [&](const char* name) { return ctx->saved_data[name].toTensor(); };
    const Tensor dx = made("dx"), dw = made("dw"), dl = made("dl"), db = made("db");
    ctx->saved_data.clear();
    const bool whole = grads[0].is_meta() ||
                       (grads[0].is_cpu() && grads[0].item<float>() == 1.0F);  // the usual root: nothing to multiply
    const auto times = [&](const Tensor& grad) {
      if (whole || !grad.defined()) return grad;
      if (!gpu::has_kernels(grad) || grads[0].scalar_type() != at::kFloat)
        return grad.mul(grads[0]).to(grad.scalar_type());
      gpu::scale(grad.view({-1}), grads[0]);
      return grad;
    };
    return {times(dx), times(dw), times(dl), times(db), Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }

 private:
  /// dw += g^T x: in float32 over several chunks, so that small parts are not lost.
  static void add_product(Tensor& dw_VD, const Tensor& g_CV, const Tensor& x_CD, bool several) {
    const UsedFor use(MemoryUse::kGradients);
    const Tensor part = product(g_CV.t(), x_CD);
    if (!dw_VD.defined()) {
      dw_VD = several ? part.to(at::kFloat) : part;
    } else if (gpu::has_kernels(part)) {
      gpu::accumulate(dw_VD.view({-1}), part.view({-1}), /*adds=*/true);
    } else {
      dw_VD.add_(part);
    }
  }

  static Tensor scattered(const Tensor& dx, const Tensor& kept, const Tensor& like) {
    if (!dx.defined() || !kept.defined()) return dx;
    return at::zeros_like(like).index_copy_(0, kept.to(dx.device()), dx);
  }
};

}  // namespace

std::pair<Tensor, Tensor> chunked_cross_entropy(const Tensor& hidden, const Tensor& w, const Tensor& targets,
                                                double weight, int64_t chunk, const std::optional<LowRankLogits>& low,
                                                double smoothing) {
  const auto wanted = [recording = at::GradMode::is_enabled()](const Tensor& x) {
    return recording && x.requires_grad();
  };
  std::optional<Tensor> h, b;
  if (low) h = low->h, b = low->b;
  const Wanted want{.hidden = wanted(hidden), .w = wanted(w), .low = low && (wanted(low->h) || wanted(low->b))};
  const int64_t rows = gpu::has_kernels(hidden) ? kChunksOfGpu * chunk : chunk;
  const auto made =
      CrossEntropy::apply(hidden.contiguous(), w, h, b, targets.contiguous(), weight, smoothing, rows, want);
  return {made[0], made[1].detach()};
}

}  // namespace lockstep::fn
