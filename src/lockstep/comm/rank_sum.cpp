#include "lockstep/comm/rank_sum.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include <c10/util/Half.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kTile = 2048;  // floats that stay in the first cache

struct Bf16 {
  uint16_t bits;
};

inline float to_float(float value) { return value; }
inline float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
inline float to_float(c10::Half value) { return static_cast<float>(value); }

template <typename T>
void sum_parts(float* sum, std::span<const void* const> parts, int64_t numel, bool accumulate) {
  std::array<float, kTile> tile;
  for (int64_t begin = 0; begin < numel; begin += kTile) {
    const int64_t size = std::min(kTile, numel - begin);
    const T* first = static_cast<const T*>(parts[0]) + begin;
    for (int64_t i = 0; i < size; ++i) tile[static_cast<size_t>(i)] = to_float(first[i]);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T* part = static_cast<const T*>(parts[p]) + begin;
      for (int64_t i = 0; i < size; ++i) tile[static_cast<size_t>(i)] += to_float(part[i]);
    }
    float* out = sum + begin;
    if (accumulate) {
      for (int64_t i = 0; i < size; ++i) out[i] += tile[static_cast<size_t>(i)];
    } else {
      std::copy_n(tile.begin(), size, out);
    }
  }
}

template <typename T>
void reduce_parts(T* value, std::span<const void* const> parts, int64_t numel, bool maximum) {
  for (int64_t i = 0; i < numel; ++i) {
    T result = static_cast<const T*>(parts[0])[i];
    for (size_t p = 1; p < parts.size(); ++p) {
      const T part = static_cast<const T*>(parts[p])[i];
      if (!maximum) {
        result = static_cast<T>(result + part);
      } else if (part > result || part != part) {  // not-a-number stays, as in a sum
        result = part;
      }
    }
    value[i] = result;
  }
}

}  // namespace

void sum_in_rank_order(float* sum, std::span<const void* const> parts, Dtype dtype, int64_t numel, bool accumulate) {
  switch (dtype) {
    case Dtype::kF32:
      return sum_parts<float>(sum, parts, numel, accumulate);
    case Dtype::kBF16:
      return sum_parts<Bf16>(sum, parts, numel, accumulate);
    case Dtype::kF16:
      return sum_parts<c10::Half>(sum, parts, numel, accumulate);
    default:
      check(false, "reduce_scatter adds f32, bf16 and f16, not " + dtype_name(dtype));
  }
}

void reduce_in_rank_order(void* value, std::span<const void* const> parts, Dtype dtype, int64_t numel, bool maximum) {
  switch (dtype) {
    case Dtype::kF32:
      return reduce_parts(static_cast<float*>(value), parts, numel, maximum);
    case Dtype::kF64:
      return reduce_parts(static_cast<double*>(value), parts, numel, maximum);
    case Dtype::kI64:
      return reduce_parts(static_cast<int64_t*>(value), parts, numel, maximum);
    default:
      check(false, "all_reduce takes f32, f64 and i64, not " + dtype_name(dtype));
  }
}

}  // namespace lockstep
