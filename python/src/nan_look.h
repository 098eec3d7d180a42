// Whether a rank is about to give to the others what is no number.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace lockstep::python {

/// Looks at so much of a tensor as costs little beside sending it: all of a small one, stretches of a large one. False for
/// one that is not in the memory of this host: to look there would wait for its device. What is said by tell_nan counts
/// instead.
bool holds_nan(const at::Tensor& tensor);

/// As Python knows them: where they lie, and "float32", "bfloat16", … Other dtypes hold none.
bool holds_nan(const void* data, int64_t count, std::string_view dtype);

/// Of this thread, until it says something else: whether what it gives holds NaN, which the tensors do not tell, as they have
/// rests that nobody has written to. Returns what was said before.
std::optional<bool> tell_nan(std::optional<bool> holds);

}  // namespace lockstep::python
