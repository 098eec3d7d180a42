#include "lockstep/tensor/make.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr std::array kScalarTypes{at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong,
                                  at::kInt,   at::kShort,    at::kChar, at::kByte,   at::kBool};

at::ScalarType scalar_type(Dtype dtype) { return kScalarTypes.at(static_cast<size_t>(dtype)); }

at::TensorOptions options(Dtype dtype, const std::string& device) {
  return at::TensorOptions().dtype(scalar_type(dtype)).device(at::Device(device));
}

template <typename T>
Tensor copy_of(std::span<const T> values, const Shape& shape, Dtype stored) {
  check(static_cast<int64_t>(values.size()) == numel_of(shape), "from_values: as many values as the shape holds");
  Tensor made = empty(shape, stored);
  if (stored == Dtype::kI64) {
    std::copy(values.begin(), values.end(), made.mutable_data_ptr<int64_t>());
  } else {
    std::transform(values.begin(), values.end(), made.mutable_data_ptr<float>(),
                   [](T value) { return static_cast<float>(value); });
  }
  return made;
}

/// Splitmix64: a counter goes in, well-mixed bits come out. Source: Steele et al. 2014, "Fast splittable generators".
uint64_t mix(uint64_t counter) {
  uint64_t z = counter * 0x9E3779B97F4A7C15ULL + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

/// FNV-1a over the name, stirred with the seed: where a tensor's stream of counters begins.
uint64_t stream_of(uint64_t seed, const std::string& name) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return mix(hash ^ mix(seed));
}

/// In (0, 1): 53 bits, never the ends.
double unit(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53; }

}  // namespace

Tensor empty(const Shape& shape, Dtype dtype, const std::string& device) {
  return at::empty(shape, options(dtype, device));
}

Tensor zeros(const Shape& shape, Dtype dtype, const std::string& device) {
  return at::zeros(shape, options(dtype, device));
}

Tensor full(const Shape& shape, double value, Dtype dtype, const std::string& device) {
  return at::full(shape, value, options(dtype, device));
}

Tensor from_values(std::span<const int64_t> values, const Shape& shape) { return copy_of(values, shape, Dtype::kI64); }
Tensor from_values(std::span<const int32_t> values, const Shape& shape) { return copy_of(values, shape, Dtype::kI64); }
Tensor from_values(std::span<const float> values, const Shape& shape) { return copy_of(values, shape, Dtype::kF32); }

Tensor view_memory(void* data, const Shape& shape, Dtype dtype) {
  return at::from_blob(data, shape, at::TensorOptions().dtype(scalar_type(dtype)));
}

Dtype dtype_of(const Tensor& tensor) {
  const auto* found = std::find(kScalarTypes.begin(), kScalarTypes.end(), tensor.scalar_type());
  check(found != kScalarTypes.end(), "dtype_of: a dtype that Lockstep uses");
  return static_cast<Dtype>(found - kScalarTypes.begin());
}

int scalar_type_of(Dtype dtype) { return static_cast<int>(scalar_type(dtype)); }
Tensor to_dtype(const Tensor& tensor, Dtype dtype) { return tensor.to(scalar_type(dtype)); }
Shape shape_of(const Tensor& tensor) { return tensor.sizes().vec(); }
TensorSpec spec_of(const Tensor& tensor, std::string name) {
  return {std::move(name), dtype_of(tensor), shape_of(tensor)};
}

void fill_normal(const Tensor& tensor, double std, uint64_t seed, const std::string& name) {
  const uint64_t stream = stream_of(seed, name);
  const int64_t numel = tensor.numel();
  Tensor values = empty({numel}, Dtype::kF32);
  auto* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < numel; i += 2) {  // Box-Muller: two uniforms give two normals
    const auto counter = stream + static_cast<uint64_t>(i);
    const double radius = std * std::sqrt(-2.0 * std::log(unit(mix(counter))));
    const double angle = 2.0 * std::numbers::pi * unit(mix(counter + 1));
    out[i] = static_cast<float>(radius * std::cos(angle));
    if (i + 1 < numel) out[i + 1] = static_cast<float>(radius * std::sin(angle));
  }
  tensor.copy_(values.view(tensor.sizes()));
}

void fill_uniform(const Tensor& tensor, double bound, uint64_t seed, const std::string& name, int64_t begin) {
  const uint64_t stream = stream_of(seed, name) + static_cast<uint64_t>(begin);
  Tensor values = empty({tensor.numel()}, Dtype::kF32);
  auto* out = values.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    out[i] = static_cast<float>(bound * (2.0 * unit(mix(stream + static_cast<uint64_t>(i))) - 1.0));
  }
  tensor.copy_(values.view(tensor.sizes()));
}

}  // namespace lockstep
