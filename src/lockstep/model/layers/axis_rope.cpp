// A axes, T tokens, H head size.
#include "lockstep/model/layers/axis_rope.h"

#include <numeric>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/fn.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

std::pair<Tensor, Tensor> axis_rope(const Tensor& positions, const RopeConfig& rope) {
  const auto half = static_cast<int64_t>(rope.inverse_frequencies.size());
  check(std::accumulate(rope.sections.begin(), rope.sections.end(), int64_t{0}) == half,
        "axis_rope: sections of all frequencies");
  const Tensor frequencies = from_values(std::span<const float>(rope.inverse_frequencies), {half});
  const auto [cos, sin] =
      fn::rope_tables(positions, sent_to(frequencies, positions.device()), rope.scaling, Dtype::kF32);
  const auto chosen = [&](const Tensor& table) {
    std::vector<Tensor> parts;
    int64_t begin = 0;
    for (size_t i = 0; i < rope.sections.size(); ++i) {
      const auto axis = static_cast<int64_t>(i) % positions.size(0);
      parts.push_back(table.select(0, axis).narrow(-1, begin, rope.sections[i]));
      begin += rope.sections[i];
    }
    const size_t count = parts.size();
    for (size_t i = 0; i < count; ++i) parts.push_back(parts[i]);  // pairs stand half a head apart
    return at::cat(parts, -1);
  };
  return {chosen(cos), chosen(sin)};
}

}  // namespace lockstep
