// Sixteen lanes as the compiler's vector types, whatever the instruction set. Included only by the kernels_*.cpp files.
#pragma once

#include <cstdint>

namespace lockstep::kernels {
namespace {

constexpr int64_t kLanes = 16;
using F = float __attribute__((vector_size(64)));
using I = int32_t __attribute__((vector_size(64)));
using U = uint32_t __attribute__((vector_size(64)));
using H = uint16_t __attribute__((vector_size(32)));

}  // namespace
}  // namespace lockstep::kernels
