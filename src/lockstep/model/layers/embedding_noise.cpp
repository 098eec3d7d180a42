#include "lockstep/model/layers/embedding_noise.h"

#include <cmath>

#include <ATen/core/Tensor.h>

#include "lockstep/base/error.h"
#include "lockstep/data/random.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {

Tensor with_noise(const Tensor& hidden_BTD, const EmbeddingNoise& noise) {
  if (noise.alpha <= 0 || noise.lengths.empty()) return hidden_BTD;
  const int64_t lines = hidden_BTD.size(0), width = hidden_BTD.size(1), numbers = hidden_BTD.size(2);
  check(lines == 1 || lines == std::ssize(noise.lengths), "noise is of the rows of the batch");
  if (hidden_BTD.is_meta()) return hidden_BTD.add(hidden_BTD.new_empty(hidden_BTD.sizes()));
  const Tensor added = zeros({lines, width, numbers}, Dtype::kF32);
  auto* out = added.mutable_data_ptr<float>();
  int64_t begin = 0;
  for (size_t row = 0; row < noise.lengths.size(); ++row) {
    if (lines > 1) begin = static_cast<int64_t>(row) * width;
    const int64_t count = noise.lengths[row] * numbers;
    const double most = noise.alpha / std::sqrt(static_cast<double>(count));
    SplitMix64 random(noise.keys.at(row), 0);
    constexpr int64_t kSteps = int64_t{1} << 24;
    for (int64_t i = 0; i < count; ++i) {
      const double part = static_cast<double>(random.below(kSteps)) / static_cast<double>(kSteps / 2) - 1.0;
      out[begin * numbers + i] = static_cast<float>(most * part);
    }
    begin += noise.lengths[row];
  }
  return hidden_BTD.add(to_dtype(sent_to(added, hidden_BTD.device()), dtype_of(hidden_BTD)));
}

}  // namespace lockstep
