#include "nan_look.h"

#include <algorithm>
#include <cstdint>

namespace lockstep::python {
namespace {

constexpr int64_t kStretch = 256, kStretches = 32, kWhole = kStretch * kStretches;

/// Numbers as their bits: beyond those of infinity lies NaN, whatever the sign. The loop has no branch, so that it takes
/// many at a time.
template <typename Word>
bool any_beyond(const Word* values, int64_t count, Word infinity) {
  constexpr Word kNoSign = static_cast<Word>(~Word{0}) >> 1;
  Word most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max<Word>(most, values[i] & kNoSign);
  return most > infinity;
}

template <typename Word>
bool any_nan(const void* data, int64_t count, Word infinity) {
  const auto* values = static_cast<const Word*>(data);
  if (count <= kWhole) return any_beyond(values, count, infinity);
  const int64_t step = (count - kStretch) / (kStretches - 1);
  for (int64_t i = 0; i < kStretches; ++i) {
    if (any_beyond(values + i * step, kStretch, infinity)) return true;
  }
  return false;
}

}  // namespace

bool holds_nan(const at::Tensor& tensor) {
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense())
    return false;
  if (tensor.is_conj() || tensor.is_neg() || !tensor.has_storage() || tensor.numel() == 0) return false;
  const void* const data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return any_nan<uint32_t>(data, tensor.numel(), 0x7F800000U);
    case at::kDouble:
      return any_nan<uint64_t>(data, tensor.numel(), 0x7FF0000000000000ULL);
    case at::kBFloat16:
      return any_nan<uint16_t>(data, tensor.numel(), 0x7F80);
    case at::kHalf:
      return any_nan<uint16_t>(data, tensor.numel(), 0x7C00);
    default:
      return false;
  }
}

}  // namespace lockstep::python
