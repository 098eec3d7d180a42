#include "lockstep/tensor/finite.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include "lockstep/tensor/fn_common.h"

namespace lockstep {

bool all_finite(const Tensor& x) {
  if (x.is_meta()) return true;  // it holds nothing
  if (!x.is_cpu() || !x.is_contiguous() || !fn::is_element(x)) return at::isfinite(x).all().item<bool>();
  bool finite = true;
  fn::with_element(x, [&]<typename T>() { finite = kernels::table<T>().all_finite(fn::read_of<T>(x), x.numel()); });
  return finite;
}

}  // namespace lockstep
