// What a person can do where a model computes what is no number.
#pragma once

namespace lockstep {

inline constexpr const char* kNotFiniteHint =
    "--torch_dtype bfloat16, or float32: float16 holds no number above 65504; with these the weights are at fault";

}  // namespace lockstep
