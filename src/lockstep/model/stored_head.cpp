#include "lockstep/model/stored_head.h"

#include <algorithm>

#include <ATen/core/Tensor.h>

#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int64_t kAtOnce = int64_t{4} << 20;  // elements

bool equal_values(const Weights& weights, const TensorSpec& one, const TensorSpec& two) {
  if (weights.same_bytes(one.name, two.name)) return true;
  const Dtype dtype = one.dtype == two.dtype ? one.dtype : Dtype::kF32;
  const int64_t numel = numel_of(one.shape);
  for (int64_t begin = 0; begin < numel; begin += kAtOnce) {
    const Tensor a = empty({std::min(kAtOnce, numel - begin)}, dtype);
    const Tensor b = empty({a.numel()}, dtype);
    weights.read_flat(one.name, begin, a);
    weights.read_flat(two.name, begin, b);
    if (!a.equal(b)) return false;
  }
  return true;
}

/// Under the names of one writer; what is some rows of another tensor is none of its own.
const TensorSpec* stored(const Weights& weights, const Dialect& dialect, const std::string& key) {
  const StoredPart part = stored_part(dialect, key);
  return part.rows.whole() ? weights.find(part.name) : nullptr;
}

std::optional<StoredHead> find_under(const Dialect& dialect, const ParamSpec& tied, const Weights& weights) {
  const TensorSpec* head = stored(weights, dialect, tied.untied_key);
  const TensorSpec* embedding = stored(weights, dialect, tied.sources.at(0).key);
  if (head == nullptr || embedding == nullptr || head == embedding) return std::nullopt;
  const bool same_shape = head->shape == embedding->shape;
  return StoredHead{.head = head->name,
                    .embedding = embedding->name,
                    .same_shape = same_shape,
                    .equal = same_shape && equal_values(weights, *head, *embedding)};
}

}  // namespace

std::optional<StoredHead> find_stored_head(const Model& model, const Weights& weights) {
  for (const auto& block : model.blocks) {
    for (const auto& param : block->params()) {
      if (!param.tied) continue;
      if (auto found = find_under({}, param, weights)) return found;
      for (const auto& dialect : model.dialects) {
        if (auto found = find_under(dialect, param, weights)) return found;
      }
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
