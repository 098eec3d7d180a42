#include "lockstep/train/train_options.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

int64_t steps_per_epoch(int64_t batches_per_epoch, int64_t gradient_accumulation_steps) {
  return std::max<int64_t>(1, (batches_per_epoch + gradient_accumulation_steps - 1) / gradient_accumulation_steps);
}

int64_t steps_left(const TrainOptions& options, const LoaderCursor& cursor, const EpochRows& rows) {
  const auto steps_of = [&](int64_t count) {
    const int64_t batches = (count + rows.per_batch - 1) / rows.per_batch;
    return (batches + options.gradient_accumulation_steps - 1) / options.gradient_accumulation_steps;
  };
  const int64_t each = std::max<int64_t>(1, steps_of(rows.whole));
  const auto total = static_cast<int64_t>(std::ceil(options.num_train_epochs * static_cast<double>(each)));
  const int64_t whole_epochs = total / each, tail = total % each;
  if (cursor.epoch > whole_epochs) return 0;
  if (cursor.epoch == whole_epochs) return std::max<int64_t>(0, tail - steps_of(cursor.rows));
  return steps_of(rows.end - cursor.rows) + (whole_epochs - 1 - cursor.epoch) * each + tail;
}

int64_t total_steps(const TrainOptions& options, int64_t batches_per_epoch) {
  const auto each = static_cast<double>(steps_per_epoch(batches_per_epoch, options.gradient_accumulation_steps));
  const auto of_epochs = [&](double epochs) { return static_cast<int64_t>(std::ceil(epochs * each)); };
  const int64_t total = options.max_steps > 0 ? options.max_steps : of_epochs(options.num_train_epochs);
  return options.max_epochs > 0 ? std::min(total, of_epochs(options.max_epochs)) : total;
}

}  // namespace lockstep
