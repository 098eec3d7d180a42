// What fn::activation knows, by the names that config.json gives them.
#pragma once

#include <array>
#include <string_view>

namespace lockstep {

inline constexpr std::array<std::string_view, 8> kActivationNames{
    "gelu", "gelu_pytorch_tanh", "gelu_new", "gelu_fast", "quick_gelu", "silu", "swish", "relu"};

}  // namespace lockstep
