#include "lockstep/train/window.h"

#include <optional>
#include <utility>

#include "lockstep/comm/together.h"

namespace lockstep {

WindowReader::WindowReader(Loader& loader, Communicator& data, Communicator& control, Options options)
    : loader_(loader), data_(data), control_(control), options_(std::move(options)) {}

Window WindowReader::next(int64_t size) {
  Window window;
  for (int64_t micro = 0; micro < size && !window.stop && add(window); ++micro) {
  }
  if (!options_.one_epoch && window.after.rows >= loader_.epoch_end(window.after.rows)) {
    window.after = {.epoch = window.after.epoch + 1, .rows = 0};
    loader_.seek(window.after);
  }
  return window;
}

bool WindowReader::add(Window& window) {
  std::optional<LoadedBatch> loaded;
  std::optional<Failure> failure;
  Parts parts;
  try {
    const PhaseScope scope(control_.recorder(), Phase::kData, loader_.next_places());
    loaded = loader_.next();
    if (loaded) parts = admitted(*loaded);
  } catch (const std::exception& error) {
    failure = describe_failure(error);
  }
  if (!loaded && !failure) return false;  // the epoch is over, on all ranks at this call
  while (add_part(window, parts, failure)) {
  }
  window.after = loaded->after;
  return true;
}

WindowReader::Parts WindowReader::admitted(LoadedBatch& loaded) {
  Parts parts{.batches = {}, .skipped = static_cast<int64_t>(loaded.skipped.size())};
  if (options_.admission == nullptr) {
    parts.batches.push_back(std::move(loaded.rows));
    return parts;
  }
  Admitted admitted = options_.admission->admit(std::move(loaded.rows));
  if (!admitted.refused.empty()) {
    last_refused_ = admitted.refused.back();
    const char* const hint = "a smaller --max_length, smaller --max_pixels, more devices, or a larger --memory_limit";
    if (options_.strict) throw UserError(ExitCode::kMemory, last_refused_, hint);
  }
  parts.skipped += static_cast<int64_t>(admitted.refused.size());
  for (auto& batch : admitted.batches) parts.batches.push_back(std::move(batch));
  return parts;
}

/// One part of a micro-batch, agreed on with all ranks; those that have no part left serve the others. Whether more
/// come, on any rank.
bool WindowReader::add_part(Window& window, Parts& parts, std::optional<Failure> failure) {
  Batch batch;
  std::vector<int64_t> rows;
  if (!parts.batches.empty()) {
    for (const Features& row : parts.batches.front()) rows.push_back(row.sample.row);
  }
  try {
    if (!parts.batches.empty()) batch = collate(parts.batches.front(), options_.collate);
  } catch (const std::exception& error) {
    failure = describe_failure(error);
  }
  if (!parts.batches.empty()) parts.batches.pop_front();
  const bool wish = options_.stop_wanted && options_.stop_wanted();
  const Agreement agreed = agree(control_, {.modalities = batch.modalities.bits(),
                                            .target_tokens = batch.target_tokens,
                                            .input_tokens = batch.input_tokens,
                                            .rows = batch.rows,
                                            .speech_targets = batch.speech_targets,
                                            .stop = wish || failure,
                                            .skipped = std::exchange(parts.skipped, 0),
                                            .more = !parts.batches.empty(),
                                            .fingerprint = data_.ring().history(),
                                            .plan_hash = options_.plan_hash});
  // A stop is a wish or a failure: only then is it worth asking which.
  if (agreed.stop) agree_no_failure(control_, "data of a micro-batch", failure);
  window.stop = window.stop || agreed.stop;
  window.target_tokens += agreed.target_tokens;
  window.input_tokens += agreed.input_tokens;
  window.rows += agreed.rows;
  window.speech_targets += agreed.speech_targets;
  window.skipped += agreed.skipped;
  window.micro_batches.push_back({std::move(batch.flow), batch.modalities, agreed.modalities, std::move(rows),
                                  std::move(batch.row_ends), std::move(batch.lengths)});
  return agreed.more;
}

}  // namespace lockstep
