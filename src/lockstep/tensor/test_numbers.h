// Numbers for the tests of this room: normal, and the same for the same name.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include "lockstep/tensor/make.h"

namespace lockstep::test {

inline Tensor drawn(at::IntArrayRef shape, const std::string& name, at::ScalarType dtype = at::kFloat) {
  const Tensor made = at::zeros(shape, at::kFloat);
  fill_normal(made, 1.0, 11, name);
  return made.to(dtype);
}

}  // namespace lockstep::test
