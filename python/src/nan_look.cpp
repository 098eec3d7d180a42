#include "nan_look.h"

#include <array>
#include <utility>

namespace lockstep::python {
namespace {

constexpr int64_t kStretch = 256, kStretches = 32, kWhole = kStretch * kStretches;

/// Numbers as their bits: beyond those of infinity lies NaN, whatever the sign, and a difference to it wraps below zero. The loop has no
/// branch, and neither compares nor takes a maximum, which older vector units lack for such words: so it takes many at a time.
template <typename Word>
bool any_beyond(const Word* values, int64_t count, Word infinity) {
  constexpr Word kNoSign = static_cast<Word>(~Word{0}) >> 1;
  Word below = 0;
  for (int64_t i = 0; i < count; ++i) below |= static_cast<Word>(infinity - (values[i] & kNoSign));
  return (below & static_cast<Word>(~kNoSign)) != 0;
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

bool any_nan(const void* data, int64_t count, at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return any_nan<uint32_t>(data, count, 0x7F800000U);
    case at::kDouble:
      return any_nan<uint64_t>(data, count, 0x7FF0000000000000ULL);
    case at::kBFloat16:
      return any_nan<uint16_t>(data, count, 0x7F80);
    case at::kHalf:
      return any_nan<uint16_t>(data, count, 0x7C00);
    default:
      return false;
  }
}

thread_local std::optional<bool> said_of_thread;

}  // namespace

bool holds_nan(const at::Tensor& tensor) {
  if (said_of_thread) return *said_of_thread;
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense())
    return false;
  if (tensor.is_conj() || tensor.is_neg() || !tensor.has_storage() || tensor.numel() == 0) return false;
  return any_nan(tensor.const_data_ptr(), tensor.numel(), tensor.scalar_type());
}

bool holds_nan(const void* data, int64_t count, std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, at::ScalarType>, 4> kNames{
      {{"float32", at::kFloat}, {"float64", at::kDouble}, {"bfloat16", at::kBFloat16}, {"float16", at::kHalf}}};
  for (const auto& [name, type] : kNames) {
    if (name == dtype && count > 0) return any_nan(data, count, type);
  }
  return false;
}

std::optional<bool> tell_nan(std::optional<bool> holds) { return std::exchange(said_of_thread, holds); }

}  // namespace lockstep::python
