#include "lockstep/train/window.h"

#include <optional>
#include <utility>

#include "lockstep/comm/together.h"

namespace lockstep {

WindowReader::WindowReader(Loader& loader, Communicator& data, Communicator& control, Options options)
    : loader_(loader), data_(data), control_(control), options_(std::move(options)) {}

Window WindowReader::next(int64_t size) {
  Window window;
  while (static_cast<int64_t>(window.micro_batches.size()) < size && add(window)) {
  }
  if (window.after.rows >= options_.rows_per_epoch) {
    window.after = {.epoch = window.after.epoch + 1, .rows = 0};
    loader_.seek(window.after);
  }
  return window;
}

bool WindowReader::add(Window& window) {
  std::optional<LoadedBatch> loaded;
  std::optional<Failure> failure;
  Batch batch;
  try {
    const PhaseScope scope(control_.recorder(), Phase::kData, loader_.next_places());
    loaded = loader_.next();
    if (loaded) batch = collate(loaded->rows, options_.collate);
  } catch (const std::exception& error) {
    failure = describe_failure(error);
  }
  if (!loaded && !failure) return false;  // the epoch is over, on all ranks at this call
  const bool wish = options_.stop_wanted && options_.stop_wanted();
  const Agreement agreed = agree(control_, {.has_rows = batch.rows > 0,
                                            .has_image = batch.has_image,
                                            .target_tokens = batch.target_tokens,
                                            .input_tokens = batch.input_tokens,
                                            .rows = batch.rows,
                                            .stop = wish || failure,
                                            .skipped = loaded ? static_cast<int64_t>(loaded->skipped.size()) : 0,
                                            .fingerprint = data_.ring().history(),
                                            .plan_hash = options_.plan_hash});
  // A stop is a wish or a failure: only then is it worth asking which.
  if (agreed.stop) agree_no_failure(control_, "data of a micro-batch", failure);
  window.stop = window.stop || agreed.stop;
  window.target_tokens += agreed.target_tokens;
  window.input_tokens += agreed.input_tokens;
  window.rows += agreed.rows;
  window.skipped += agreed.skipped;
  window.after = loaded->after;
  window.micro_batches.push_back({std::move(batch.flow),
                                  {.rows = batch.rows > 0, .image = batch.has_image},
                                  {.rows = agreed.any_rows, .image = agreed.any_image}});
  return true;
}

}  // namespace lockstep
