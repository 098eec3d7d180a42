// Lanes as the compiler's vector types: sixteen whatever the instruction set, or as many as a register has. Included only by the kernels_*.cpp files.
#pragma once

#include <cstdint>

namespace lockstep::kernels {
namespace {

/// So many numbers at a time.
template <int kWidth>
struct Lanes {
  typedef float F __attribute__((vector_size(4 * kWidth)));
  typedef uint32_t U __attribute__((vector_size(4 * kWidth)));
  typedef uint16_t H __attribute__((vector_size(2 * kWidth)));
};

constexpr int64_t kLanes = 16;
using F = Lanes<kLanes>::F;
using I = int32_t __attribute__((vector_size(64)));
using U = Lanes<kLanes>::U;
using H = Lanes<kLanes>::H;

}  // namespace
}  // namespace lockstep::kernels
