// Making tensors, with dtype and device explicit; and the bridge between our Dtype and LibTorch's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensor/fwd.h"
#include "lockstep/tensor/spec.h"

namespace lockstep {

Tensor empty(const Shape& shape, Dtype dtype, const std::string& device = "cpu");
Tensor zeros(const Shape& shape, Dtype dtype, const std::string& device = "cpu");
Tensor full(const Shape& shape, double value, Dtype dtype, const std::string& device = "cpu");
Tensor from_values(std::span<const int64_t> values, const Shape& shape);
Tensor from_values(std::span<const int32_t> values, const Shape& shape);  // becomes i64
Tensor from_values(std::span<const float> values, const Shape& shape);
/// Borrows memory; the caller keeps it alive.
Tensor view_memory(void* data, const Shape& shape, Dtype dtype);

Dtype dtype_of(const Tensor& tensor);
int scalar_type_of(Dtype dtype);  // at::ScalarType's number
Tensor to_dtype(const Tensor& tensor, Dtype dtype);
TensorSpec spec_of(const Tensor& tensor, std::string name);
Shape shape_of(const Tensor& tensor);

/// Normal(0, std) from a counter-based generator: the same values for (seed, name) on every machine and world size.
void fill_normal(const Tensor& tensor, double std, uint64_t seed, const std::string& name);
/// Uniform(-bound, bound), likewise; `tensor` holds the elements of the named one from `begin` on.
void fill_uniform(const Tensor& tensor, double bound, uint64_t seed, const std::string& name, int64_t begin = 0);

}  // namespace lockstep
