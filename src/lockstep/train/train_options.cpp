#include "lockstep/train/train_options.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

int64_t steps_per_epoch(int64_t batches_per_epoch, int64_t gradient_accumulation_steps) {
  return std::max<int64_t>(1, (batches_per_epoch + gradient_accumulation_steps - 1) / gradient_accumulation_steps);
}

int64_t total_steps(const TrainOptions& options, int64_t batches_per_epoch) {
  if (options.max_steps > 0) return options.max_steps;
  const auto each = static_cast<double>(steps_per_epoch(batches_per_epoch, options.gradient_accumulation_steps));
  return static_cast<int64_t>(std::ceil(options.num_train_epochs * each));
}

}  // namespace lockstep
