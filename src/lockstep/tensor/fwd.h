// The one header that other headers include for tensors: names, no LibTorch.
#pragma once

#include <cstdint>
#include <vector>

namespace at {
class Tensor;
}  // namespace at

namespace lockstep {

using Tensor = at::Tensor;
using Shape = std::vector<int64_t>;

}  // namespace lockstep
