// R rows of an input, O outputs of a matrix, V rows of a table, D its columns.
#include "lockstep/model/adapter.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/block.h"

namespace lockstep {
namespace {

/// What is given to A: a row of the batch has its own key, so that neither its neighbours nor the rank that has it matter.
/// Rows of media, which nobody counts, share those of the batch.
Tensor dropped(const AdaptedParam& adapted, const Tensor& x, const Context* context) {
  if (adapted.dropout == 0 || context == nullptr || context->dropout_keys.empty()) return x;
  const auto& rows = context->dropout_keys;
  const auto& ends = context->row_ends;
  if (!ends.empty() && x.dim() == 3 && x.size(0) == 1 && x.size(1) == ends.back()) {
    std::vector<Tensor> parts;
    for (size_t r = 0; r < ends.size(); ++r) {
      const int64_t begin = r == 0 ? 0 : ends[r - 1];
      parts.push_back(fn::dropout(x.narrow(1, begin, ends[r] - begin), adapted.dropout, {rows[r] ^ adapted.key}));
    }
    return at::cat(parts, 1);
  }
  std::vector<uint64_t> keys;
  if (x.dim() == 3 && x.size(0) == static_cast<int64_t>(rows.size())) {
    for (const uint64_t row : rows) keys.push_back(row ^ adapted.key);
  } else {
    keys.push_back(adapted.key);
    for (const uint64_t row : rows) keys[0] = keys[0] * 0x100000001B3ULL ^ row;
  }
  return fn::dropout(x, adapted.dropout, keys);
}

/// Tokens of all rows of a batch, row by row where it is known how many rows they are.
Tensor by_rows(const Tensor& x_RD, const Context* context) {
  const auto rows = context == nullptr ? 0 : static_cast<int64_t>(context->dropout_keys.size());
  if (rows > 0 && !context->row_ends.empty()) return x_RD.unsqueeze(0);
  return rows > 0 && x_RD.size(0) % rows == 0 ? x_RD.unflatten(0, {rows, -1}) : x_RD;
}

/// A vector over the rows of the parts, as one over all outputs: `other` where no part is.
Tensor over_outputs(const AdaptedParam& adapted, const Tensor& flat, int64_t outputs, double other, bool scaled) {
  std::vector<Tensor> pieces;
  int64_t end = 0, taken = 0;
  const auto fill_to = [&](int64_t begin) {
    if (begin > end) pieces.push_back(flat.new_full({begin - end}, other));
  };
  for (const auto& part : adapted.parts) {
    fill_to(part.first);
    const Tensor own = flat.narrow(0, taken, part.count);
    pieces.push_back(scaled ? own.mul(part.scale) : own);
    taken += part.count;
    end = part.first + part.count;
  }
  fill_to(outputs);
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces);
}

/// A [R, in...] of a patch kernel lies as the kernel does.
Tensor as_matrix(const Tensor& kernel, const Applied& applied) {
  return applied.flat != nullptr ? applied.flat(kernel) : kernel.flatten(1);
}

struct Tensors {
  const AdaptedParam& adapted;
  const Tensor &a, &b;
  Tensor magnitude, bias;  // undefined: none
};

/// Of what stands behind the block's own tensors.
Tensors tensors_of(const AdaptedParam& adapted, std::span<const Tensor> all) {
  return {.adapted = adapted,
          .a = all[adapted.a],
          .b = all[adapted.b],
          .magnitude = adapted.magnitude ? all[*adapted.magnitude] : Tensor(),
          .bias = adapted.bias ? all[*adapted.bias] : Tensor()};
}

/// g of DoRA over all outputs.
Tensor growth(const Tensors& of, const Tensor& w_OI, const Tensor& a) {
  const Tensor norms = fn::low_rank_row_norms(w_OI, a, of.b, of.adapted.parts);
  return over_outputs(of.adapted, of.magnitude.div(norms), w_OI.size(0), 1.0, /*scaled=*/false);
}

Tensor base_linear(const Tensor& x, const fn::AdaptedMatrix& m) {
  if (!m.valued) return fn::linear_without_value(x, m.w, m.bias == nullptr ? std::nullopt : std::optional(*m.bias));
  return m.bias != nullptr ? fn::linear(x, m.w, *m.bias) : fn::linear(x, m.w);
}

Tensor adapted_linear(const Tensors& of, const Tensor& x, const fn::AdaptedMatrix& m, const Applied& applied,
                      const Context* context) {
  const Tensor &w_OI = m.w, a = as_matrix(of.a, applied), given = dropped(of.adapted, x, context);
  const bool whole = given.is_same(x);
  if (!of.magnitude.defined()) {
    Tensor y = whole ? fn::adapted_linear(x, m, a, of.b, of.adapted.parts)
                     : fn::add_low_rank(base_linear(x, m), given, a, of.b, of.adapted.parts);
    if (!of.bias.defined()) return y;
    return y.add(over_outputs(of.adapted, of.bias, w_OI.size(0), 0.0, /*scaled=*/true).to(y.scalar_type()));
  }
  const Tensor g = growth(of, w_OI, a).to(x.scalar_type());
  const fn::AdaptedMatrix unbiased{w_OI, nullptr, m.valued};
  if (whole) {
    const Tensor grown = fn::adapted_linear(x, unbiased, a, of.b, of.adapted.parts).mul(g);
    return m.bias != nullptr ? grown.add(*m.bias) : grown;
  }
  const Tensor seen = base_linear(given, unbiased);
  const Tensor both = fn::add_low_rank(seen.clone(), given, a, of.b, of.adapted.parts);
  return base_linear(x, m).add(both.mul(g)).sub(seen);
}

/// Of `other` the rows that are chosen, of `y` the others: [N, ...].
Tensor with_rows(const Tensor& y, const Tensor& other, const Tensor& rows_N) {
  check(rows_N.size(0) == y.size(0), "rows that choose an adapter are those of the batch");
  std::vector<int64_t> shape(static_cast<size_t>(y.dim()), 1);
  shape[0] = y.size(0);
  return at::where(rows_N.view(shape), other, y);
}

/// A [r,V], B [D,r]: rows of A's columns, times B.
Tensor adapted_rows(const Tensors& of, const Tensor& ids, const Tensor& table_VD) {
  const auto& part = of.adapted.parts.at(0);
  const Tensor b_Dr = of.b.view({part.count, part.rank});
  const Tensor low = fn::embedding(ids, of.a.t()).to(table_VD.scalar_type());
  const Tensor base = fn::embedding(ids, table_VD);
  const Tensor added = fn::linear(low, b_Dr.to(table_VD.scalar_type())).mul(part.scale);
  if (!of.magnitude.defined()) return base.add(added);
  const Tensor norms_D = fn::low_rank_row_norms(table_VD.t(), of.a, of.b, of.adapted.parts);
  return base.add(added).mul(of.magnitude.div(norms_D).to(base.scalar_type()));
}

std::string weight_of(std::string_view module) {
  return module.empty() ? std::string("weight") : std::string(module) + ".weight";
}

std::string bias_of(std::string_view module) {
  return module.empty() ? std::string("bias") : std::string(module) + ".bias";
}

}  // namespace

/// An adapter of a parameter, and the rows that are computed with it; undefined: all.
struct Params::Use {
  const AdaptedParam* adapted;
  Tensor rows;
};

size_t Params::index_of(std::string_view local) const {
  const Tensor& found = (*this)[local];
  return static_cast<size_t>(&found - tensors_.data());
}

std::vector<Params::Use> Params::uses_of(size_t param) const {
  std::vector<Use> uses;
  for (const auto& one : adapted_ == nullptr ? std::span<const AdaptedParam>() : std::span(adapted_->params)) {
    if (one.param != param) continue;
    if (context_ == nullptr || !context_->adapter_rows) {
      uses.push_back({&one, {}});
      continue;
    }
    const auto& [adapters, rows] = *context_->adapter_rows;
    for (size_t i = 0; i < adapters.size(); ++i) {
      if (adapters[i] == one.adapter) uses.push_back({&one, rows.empty() ? Tensor() : rows[i]});
    }
  }
  check(uses.size() < 2 || uses[0].rows.defined(), "rows choose among several adapters");
  return uses;
}

Tensor Params::add_linear(const Tensor& sum, std::string_view module, const Tensor& x) const {
  const size_t index = index_of(weight_of(module));
  const bool plain = tensors_[index].dim() == 2 && find(bias_of(module)) == nullptr && uses_of(index).empty();
  return plain ? fn::add_linear(sum, x, tensors_[index]) : sum.add(linear(module, x, {.summed = true}));
}

Tensor Params::linear(std::string_view module, const Tensor& x, const Applied& applied) const {
  const size_t index = index_of(weight_of(module));
  const Tensor& w = tensors_[index];
  const Tensor* own = applied.bias != nullptr ? applied.bias : find(bias_of(module));
  const Tensor w_OI = applied.flat != nullptr ? applied.flat(w) : w.flatten(1);
  const std::vector<Use> uses = uses_of(index);
  const bool unread = applied.summed && context_ != nullptr && context_->gradients_only &&
                      std::ranges::none_of(uses, [](const Use& use) { return use.adapted->magnitude.has_value(); });
  const fn::AdaptedMatrix matrix{w_OI, own, !unread};
  const auto adapted = [&](const Use& use) {
    return adapted_linear(tensors_of(*use.adapted, tensors_), x, matrix, applied, context_);
  };
  if (uses.empty()) return base_linear(x, matrix);
  if (!uses[0].rows.defined()) return adapted(uses[0]);
  // Every adapter computes all rows, of which its own are taken: what a row gets does not depend on its neighbours'.
  Tensor y = base_linear(x, matrix);
  std::vector<fn::LowRankOfRows> added;
  std::deque<Tensor> matrices;
  std::vector<Use> others;
  for (const auto& use : uses) {
    const Tensors of = tensors_of(*use.adapted, tensors_);
    if (of.magnitude.defined() || of.bias.defined()) {
      others.push_back(use);
    } else {
      added.push_back({matrices.emplace_back(as_matrix(of.a, applied)), of.b, use.adapted->parts, use.rows});
    }
  }
  if (!added.empty()) fn::add_low_rank_of_rows(y, x, added);
  for (const auto& use : others) y = with_rows(y, adapted(use), use.rows);
  return y;
}

Tensor Params::rows(std::string_view module, const Tensor& ids) const {
  const size_t index = index_of(weight_of(module));
  const std::vector<Use> uses = uses_of(index);
  const auto adapted = [&](const Use& use) {
    return adapted_rows(tensors_of(*use.adapted, tensors_), ids, tensors_[index]);
  };
  if (!uses.empty() && !uses[0].rows.defined()) return adapted(uses[0]);
  Tensor y = fn::embedding(ids, tensors_[index]);
  for (const auto& use : uses) y = with_rows(y, adapted(use), use.rows);
  return y;
}

std::pair<Tensor, Tensor> Params::cross_entropy(std::string_view module, const Tensor& x_RD, const Tensor& targets_R,
                                                double weight, int64_t chunk, double smoothing) const {
  const size_t index = index_of(weight_of(module));
  const Tensor& w_VD = tensors_[index];
  const std::vector<Use> uses = uses_of(index);
  if (uses.empty()) return fn::chunked_cross_entropy(x_RD, w_VD, targets_R, weight, chunk, std::nullopt, smoothing);
  check(!uses[0].rows.defined(), "a loss is computed with one adapter");
  const AdaptedParam* const adapted = uses[0].adapted;
  const Tensors of = tensors_of(*adapted, tensors_);
  if (of.magnitude.defined() || of.bias.defined()) {
    throw usage_error(fmt::format("{}: a loss through {} of an output head is not built", module,
                                  of.magnitude.defined() ? "DoRA" : "a bias of LoRA's B"),
                      "infer, embed and export take such an adapter; to train or measure one, leave its head out");
  }
  const auto& part = adapted->parts.at(0);
  const auto dtype = x_RD.scalar_type();
  const Tensor given = dropped(*adapted, by_rows(x_RD, context_), context_).reshape(x_RD.sizes());
  const Tensor low = fn::linear(given, of.a.to(dtype)).mul(part.scale);
  const Tensor b_Vr = of.b.view({part.count, part.rank}).to(dtype);
  return fn::chunked_cross_entropy(x_RD, w_VD, targets_R, weight, chunk, fn::LowRankLogits{low, b_Vr}, smoothing);
}

}  // namespace lockstep
