// What a tensor is, without being one: dtype, shape, bytes. Plans and error messages are made of these.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/tensor/fwd.h"

namespace lockstep {

enum class Dtype : uint8_t { kF32, kBF16, kF16, kF64, kI64, kI32, kI16, kI8, kU8, kBool };

int64_t dtype_bytes(Dtype dtype);
std::string dtype_name(Dtype dtype);                  // "f32", "bf16": the word used in errors
std::string safetensors_name(Dtype dtype);            // "F32", "BF16"
Dtype dtype_from_safetensors(std::string_view name);  // throws UserError(kCheckpoint) naming the dtypes known
/// "float32", "bfloat16", "float16", also "fp32", "bf16", "fp16", "torch.bfloat16". Throws UserError(kUsage).
Dtype dtype_from_flag(std::string_view name);
std::string torch_dtype_name(Dtype dtype);  // "bfloat16": as config.json writes it

int64_t numel_of(const Shape& shape);

struct TensorSpec {
  std::string name;
  Dtype dtype = Dtype::kF32;
  Shape shape;

  int64_t bytes() const { return numel_of(shape) * dtype_bytes(dtype); }
  std::string describe() const;  // "bf16[11008, 4096]"
  bool operator==(const TensorSpec&) const = default;
};

}  // namespace lockstep
