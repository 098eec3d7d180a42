// What low-rank adapters add to products with weights. R rows, I inputs, O outputs, r ranks of all parts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/low_rank_product.h"
#include "lockstep/tensor/make.h"
#include "lockstep/tensor/product.h"

namespace lockstep::fn {
namespace {

constexpr int64_t kNormRows = 256;  // of a weight that are widened at once

/// B^T of a part, [rank, count].
Tensor part_of(const Tensor& b, const LowRankPart& part) {
  return b.narrow(0, part.begin, part.count * part.rank).view({part.count, part.rank}).t();
}

/// y += what the parts make of x; -> h.
Tensor add_parts(const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b,
                 const std::vector<LowRankPart>& parts, bool valued = true) {
  const Tensor x_RI = x.reshape({-1, x.size(-1)}), y_RO = y.view({-1, y.size(-1)});
  const Tensor h_rR = empty_ranks(x_RI, a.size(0)), b_here = b.to(x.scalar_type());
  to_ranks(h_rR, x_RI, a.to(x.scalar_type()), 1.0);
  int64_t rank = 0;
  for (const auto& part : parts) {
    if (!valued) break;
    from_ranks(y_RO.narrow(1, part.first, part.count), h_rR.narrow(0, rank, part.rank), part_of(b_here, part),
               part.scale, /*add=*/true);
    rank += part.rank;
  }
  return h_rR;
}

struct OfParts {  // gradients
  Tensor da, db, dh_rR;
};
OfParts differentiate_parts(const Tensor& g_RO, const Tensor& x, const Tensor& a, const Tensor& b, const Tensor& h_rR,
                            const std::vector<LowRankPart>& parts) {
  const Tensor b_here = b.to(x.scalar_type());
  OfParts made{at::empty_like(a), at::empty_like(b), empty_ranks(g_RO, h_rR.size(0))};
  int64_t rank = 0;
  for (const auto& part : parts) {
    const Tensor g = g_RO.narrow(1, part.first, part.count);
    to_ranks(made.dh_rR.narrow(0, rank, part.rank), g, part_of(b_here, part), part.scale);
    over_rows(part_of(made.db, part), h_rR.narrow(0, rank, part.rank), g, part.scale);
    rank += part.rank;
  }
  over_rows(made.da, made.dh_rR, x.reshape({-1, x.size(-1)}), 1.0);
  return made;
}

void keep_parts(AutogradContext* ctx, const std::vector<LowRankPart>& parts) {
  std::vector<int64_t> cuts;
  std::vector<double> scales;
  for (const auto& part : parts) {
    cuts.insert(cuts.end(), {part.first, part.count, part.rank, part.begin});
    scales.push_back(part.scale);
  }
  ctx->saved_data["cuts"] = cuts;
  ctx->saved_data["scales"] = scales;
}

std::vector<LowRankPart> parts_of(AutogradContext* ctx) {
  const auto cuts = ctx->saved_data["cuts"].toIntVector();
  const auto scales = ctx->saved_data["scales"].toDoubleVector();
  std::vector<LowRankPart> parts;
  for (size_t i = 0; i < scales.size(); ++i) {
    parts.push_back({cuts[4 * i], cuts[4 * i + 1], cuts[4 * i + 2], cuts[4 * i + 3], scales[i]});
  }
  return parts;
}

class AddLowRank final : public Function<AddLowRank> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b,
                        const std::vector<LowRankPart>* parts, bool recorded) {
    const Tensor h_rR = add_parts(y, x, a, b, *parts);
    ctx->mark_dirty({y});
    if (recorded) {
      ctx->save_for_backward({x, a, b, h_rR});
      keep_parts(ctx, *parts);
      ctx->saved_data["wants_x"] = x.requires_grad();
    }
    return y;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &a = saved[1];
    const Tensor g_RO = grads[0].reshape({-1, grads[0].size(-1)});
    const OfParts made = differentiate_parts(g_RO, x, a, saved[2], saved[3], parts_of(ctx));
    Tensor dx;
    if (ctx->saved_data["wants_x"].toBool()) {
      dx = at::empty(x.sizes(), x.options());
      from_ranks(dx.view({-1, dx.size(-1)}), made.dh_rR, a.to(x.scalar_type()), 1.0, /*add=*/false);
    }
    return {grads[0], dx, made.da, made.db, Tensor(), Tensor()};
  }
};

/// Both products in one, of a matrix and a bias that do not learn: what both send back to x is summed where it is made.
class AdaptedLinear final : public Function<AdaptedLinear> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w_OI, const std::optional<Tensor>& b_O,
                        const Tensor& a, const Tensor& b, const std::vector<LowRankPart>* parts, bool valued) {
    const Tensor y = linear_product(x, w_OI, b_O, valued);
    const Tensor h_rR = add_parts(y, x, a, b, *parts, valued);
    ctx->save_for_backward({x, x.requires_grad() ? w_OI : Tensor(), a, b, h_rR});
    keep_parts(ctx, *parts);
    return y;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &w_OI = saved[1], &a = saved[2];
    const Tensor g_RO = grads[0].reshape({-1, grads[0].size(-1)});
    const OfParts made = differentiate_parts(g_RO, x, a, saved[3], saved[4], parts_of(ctx));
    Tensor dx;
    if (w_OI.defined()) {
      dx = product(g_RO, w_OI);
      from_ranks(dx, made.dh_rR, a.to(x.scalar_type()), 1.0, /*add=*/true);
      dx = dx.view(x.sizes());
    }
    return {dx, Tensor(), Tensor(), made.da, made.db, Tensor(), Tensor()};
  }
};

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

Tensor add_low_rank(const Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b,
                    const std::vector<LowRankPart>& parts) {
  const bool recorded = at::GradMode::is_enabled() && (x.requires_grad() || a.requires_grad() || b.requires_grad());
  return AddLowRank::apply(y, x, a, b, &parts, recorded);
}

Tensor adapted_linear(const Tensor& x, const AdaptedMatrix& m, const Tensor& a, const Tensor& b,
                      const std::vector<LowRankPart>& parts) {
  const auto learns = [](const Tensor& one) { return one.requires_grad(); };
  const auto bias = m.bias == nullptr ? std::nullopt : std::make_optional(*m.bias);
  const bool one_node = at::GradMode::is_enabled() && (learns(x) || learns(a) || learns(b));
  if (one_node && !learns(m.w) && !(m.bias != nullptr && learns(*m.bias))) {
    return AdaptedLinear::apply(x, m.w, bias, a, b, &parts, m.valued);
  }
  return add_low_rank(linear_product(x, m.w, bias, m.valued), x, a, b, parts);
}

void add_low_rank_of_rows(const Tensor& y, const Tensor& x, const std::vector<LowRankOfRows>& all) {
  struct Stack {  // of the parts over the same outputs
    std::vector<Tensor> a, b, weights;
    int64_t rank = 0;
  };
  std::map<std::pair<int64_t, int64_t>, Stack> stacks;
  const int64_t rows = x.size(0);
  for (const auto& one : all) {
    int64_t rank = 0;
    for (const auto& part : one.parts) {
      Stack& stack = stacks[{part.first, part.count}];
      stack.a.push_back(one.a.narrow(0, rank, part.rank));
      stack.b.push_back(part_of(one.b, part));
      stack.weights.push_back(one.rows.mul(part.scale).unsqueeze(0).expand({part.rank, rows}));
      stack.rank += part.rank;
      rank += part.rank;
    }
  }
  std::vector<Tensor> a, weights;
  for (const auto& [outputs, stack] : stacks) {
    a.insert(a.end(), stack.a.begin(), stack.a.end());
    weights.insert(weights.end(), stack.weights.begin(), stack.weights.end());
  }
  const Tensor x_RI = x.reshape({-1, x.size(-1)}), y_RO = y.view({-1, y.size(-1)});
  const Tensor weights_rN = at::cat(weights).to(x.scalar_type());
  const Tensor a_rI = at::cat(a).to(x.scalar_type());
  Tensor h_rR = empty_ranks(x_RI, a_rI.size(0));
  to_ranks(h_rR, x_RI, a_rI, 1.0);
  h_rR = h_rR.reshape({h_rR.size(0), rows, -1}).mul_(weights_rN.unsqueeze(2)).flatten(1);
  int64_t rank = 0;
  for (const auto& [outputs, stack] : stacks) {
    const Tensor b_rO = at::cat(stack.b).to(x.scalar_type());
    from_ranks(y_RO.narrow(1, outputs.first, outputs.second), h_rR.narrow(0, rank, stack.rank), b_rO, 1.0,
               /*add=*/true);
    rank += stack.rank;
  }
}

Tensor low_rank_row_norms(const Tensor& w, const Tensor& a, const Tensor& b, const std::vector<LowRankPart>& parts) {
  const at::NoGradGuard no_grad;
  const Tensor w_OI = w.flatten(1), a_rI = a.to(at::kFloat), b_here = b.to(at::kFloat);
  int64_t rows = 0;
  for (const auto& part : parts) rows += part.count;
  const Tensor norms = at::empty({rows}, w.options().dtype(at::kFloat));
  int64_t at_row = 0, rank = 0;
  for (const auto& part : parts) {
    const Tensor b_Or = part_of(b_here, part).t(), a_part = a_rI.narrow(0, rank, part.rank);
    for (int64_t row = 0; row < part.count; row += kNormRows) {
      const int64_t count = std::min(kNormRows, part.count - row);
      const Tensor changed = product(b_Or.narrow(0, row, count), a_part).mul_(part.scale);
      changed.add_(w_OI.narrow(0, part.first + row, count));
      norms.narrow(0, at_row, count).copy_(changed.norm(2, 1));
      at_row += count;
    }
    rank += part.rank;
  }
  return norms;
}

Tensor dropout(const Tensor& x, double p, const std::vector<uint64_t>& keys) { return Dropout::apply(x, p, keys); }

}  // namespace lockstep::fn
