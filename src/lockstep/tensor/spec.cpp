#include "lockstep/tensor/spec.h"

#include <array>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

struct Names {
  Dtype dtype;
  int64_t bytes;
  const char *shorthand, *safetensors, *torch;
};

constexpr std::array kDtypes{
    Names{Dtype::kF32, 4, "f32", "F32", "float32"}, Names{Dtype::kBF16, 2, "bf16", "BF16", "bfloat16"},
    Names{Dtype::kF16, 2, "f16", "F16", "float16"}, Names{Dtype::kF64, 8, "f64", "F64", "float64"},
    Names{Dtype::kI64, 8, "i64", "I64", "int64"},   Names{Dtype::kI32, 4, "i32", "I32", "int32"},
    Names{Dtype::kI16, 2, "i16", "I16", "int16"},   Names{Dtype::kI8, 1, "i8", "I8", "int8"},
    Names{Dtype::kU8, 1, "u8", "U8", "uint8"},      Names{Dtype::kBool, 1, "bool", "BOOL", "bool"},
};

const Names& names_of(Dtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)); }

}  // namespace

int64_t dtype_bytes(Dtype dtype) { return names_of(dtype).bytes; }
std::string dtype_name(Dtype dtype) { return names_of(dtype).shorthand; }
std::string safetensors_name(Dtype dtype) { return names_of(dtype).safetensors; }
std::string torch_dtype_name(Dtype dtype) { return names_of(dtype).torch; }

Dtype dtype_from_safetensors(std::string_view name) {
  for (const auto& row : kDtypes) {
    if (name == row.safetensors) return row.dtype;
  }
  throw checkpoint_error(fmt::format("dtype \"{}\": expected one of F32 BF16 F16 F64 I64 I32 I16 I8 U8 BOOL", name),
                         "quantised checkpoints must be converted to bf16 first");
}

Dtype dtype_from_flag(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "fp32" || name == "float32" || name == "float") return Dtype::kF32;
  if (name == "bf16" || name == "bfloat16") return Dtype::kBF16;
  if (name == "fp16" || name == "float16" || name == "half") return Dtype::kF16;
  throw usage_error(fmt::format("dtype \"{}\": expected bfloat16, float16 or float32", name));
}

int64_t numel_of(const Shape& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return numel;
}

std::string TensorSpec::describe() const { return dtype_name(dtype) + format_shape(shape); }

}  // namespace lockstep
