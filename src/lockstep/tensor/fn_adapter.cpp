// What low-rank adapters add to products with weights. R rows, I inputs, O outputs, r ranks of all parts.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/fn_common.h"
#include "lockstep/tensor/low_rank_product.h"
#include "lockstep/tensor/packed_product.h"
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

/// With fewer rows it counts for more how linear() multiplies them.
constexpr int64_t kManyRows = 128;

/// Whether what ranks add to out [R,O] is summed where the product with a matrix is.
bool sums_beside(const Tensor& x, int64_t R, int64_t I, int64_t O) {
  return R >= kManyRows && packs_product(x, {R, I, O});
}

/// B^T of all parts with zeros where no part is, and which columns are whose.
std::pair<Tensor, std::vector<RankColumns>> beside(const std::vector<LowRankPart>& parts, const Tensor& b,
                                                   int64_t ranks, int64_t outputs) {
  const Tensor right = at::zeros({ranks, up_to(outputs, kernels::kPanelColumns)}, b.options());
  std::vector<RankColumns> columns;
  int64_t rank = 0;
  for (const auto& part : parts) {
    copy_scaled(right.narrow(0, rank, part.rank).narrow(1, part.first, part.count), part_of(b, part), part.scale);
    columns.push_back({part.first, part.count, rank, part.rank});
    rank += part.rank;
  }
  return {right, columns};
}

/// Both products in one, of a matrix and a bias that do not learn: what both send back to x is summed where it is made.
class AdaptedLinear final : public Function<AdaptedLinear> {
 public:
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& w_OI, const std::optional<Tensor>& b_O,
                        const Tensor& a, const Tensor& b, const std::vector<LowRankPart>* parts, bool valued) {
    const int64_t I = x.size(-1), R = x.numel() / I, O = w_OI.size(0);
    Tensor y, h_rR;
    if (valued && sums_beside(x, R, I, O)) {
      const Tensor x_RI = x.reshape({R, I});
      h_rR = empty_ranks(x_RI, a.size(0));
      to_ranks(h_rR, x_RI, a, 1.0);
      auto shape = x.sizes().vec();
      shape.back() = O;
      y = at::empty(shape, x.options());
      const Tensor left = h_rR.t();
      const auto [right, columns] = beside(*parts, b, a.size(0), O);
      const AddedRanks added{left, right, columns};
      multiply_packed(y.view({R, O}), x_RI, w_OI.t(), b_O.value_or(Tensor()), &added);
    } else {
      y = linear_product(x, w_OI, b_O, valued);
      h_rR = add_parts(y, x, a, b, *parts, valued);
    }
    ctx->save_for_backward({x, x.requires_grad() ? w_OI : Tensor(), a, b, h_rR});
    keep_parts(ctx, *parts);
    return y;
  }

  static Tensors backward(AutogradContext* ctx, const Tensors& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &w_OI = saved[1], &a = saved[2];
    const Tensor g_RO = grads[0].reshape({-1, grads[0].size(-1)});
    const OfParts made = differentiate_parts(g_RO, x, a, saved[3], saved[4], parts_of(ctx));
    const Tensor dx =
        w_OI.defined() ? of_inputs(g_RO, w_OI, made.dh_rR, a.to(x.scalar_type())).view(x.sizes()) : Tensor();
    return {dx, Tensor(), Tensor(), made.da, made.db, Tensor(), Tensor()};
  }

 private:
  static Tensor of_inputs(const Tensor& g_RO, const Tensor& w_OI, const Tensor& dh_rR, const Tensor& a_rI) {
    const int64_t R = g_RO.size(0), O = g_RO.size(1), I = a_rI.size(1), ranks = a_rI.size(0);
    if (!sums_beside(g_RO, R, O, I)) {
      Tensor dx = product(g_RO, w_OI);
      from_ranks(dx, dh_rR, a_rI, 1.0, /*add=*/true);
      return dx;
    }
    Tensor right = a_rI;
    if (I % kernels::kPanelColumns != 0 || a_rI.stride(1) != 1) {
      right = at::zeros({ranks, up_to(I, kernels::kPanelColumns)}, a_rI.options());
      copy_scaled(right.narrow(1, 0, I), a_rI, 1.0);
    }
    const Tensor dx = at::empty({R, I}, g_RO.options());
    const Tensor left = dh_rR.t();
    const std::array<RankColumns, 1> columns{{{0, I, 0, ranks}}};
    const AddedRanks added{left, right, columns};
    multiply_packed(dx, g_RO, w_OI, {}, &added);
    return dx;
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

}  // namespace lockstep::fn
