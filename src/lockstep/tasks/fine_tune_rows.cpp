// The rows of a fine-tuning run: opened, looked at, brought together, dealt out.
#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/new_file.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/data/sample_row.h"
#include "lockstep/data/sample_view.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/session/batch_search.h"
#include "lockstep/session/first_row.h"
#include "lockstep/session/row_pieces.h"
#include "lockstep/session/unbuilt_rows.h"
#include "lockstep/tasks/fine_tune_run.h"

namespace lockstep {

void FineTuneRun::open_rows() {
  DatasetOptions options = options_.rows.dataset();
  options.streaming = options_.grouping.streaming;
  std::string fingerprint;
  together(job_.control(), "opening data sets", [&] {
    train_rows_.emplace(options_.dataset, options);
    fingerprint = train_rows_->fingerprint();
    DatasetOptions evaluated = options;
    evaluated.draws = false;  // as ms-swift: its val_dataset_shuffle is false
    if (!options_.val_dataset.empty()) val_rows_.emplace(options_.val_dataset, evaluated);
    if (val_rows_ || options_.split_dataset_ratio <= 0) return;
    auto [rest, kept] = Dataset::split(std::move(*train_rows_), options_.split_dataset_ratio, data_seed());
    train_rows_.emplace(std::move(rest));
    val_rows_.emplace(std::move(kept));
  });
  agree_on(job_.control(), {{"training options", options_.fingerprint()},
                            {"data set", fingerprint},
                            {"evaluation data set", val_rows_ ? val_rows_->fingerprint() : "none"}});
}

/// As ms-swift does, for whoever asks about these rows later (infer --load_data_args true): where they came from may change.
void FineTuneRun::keep_split_rows() const {
  constexpr size_t kMost = size_t{256} << 20;  // pictures may stand in the rows themselves
  if (!options_.val_dataset.empty() || options_.split_dataset_ratio <= 0) return;
  const std::filesystem::path path = folder_.dir / "val_dataset.jsonl";
  NewFile file(path);
  size_t written = 0;
  const Dataset& rows = kept_rows();
  for (int64_t row = 0; row < rows.size(); ++row) {
    const Sample sample = rows.sample_or_name(row);
    if (sample.messages.empty() && sample.input_ids.empty()) continue;  // it cannot be read
    const std::string line = sample_row(sample).dump(-1, ' ', false, Json::error_handler_t::replace);
    written += line.size();
    if (written > kMost) {
      std::filesystem::remove(path);  // of another run in this folder
      return notice(fmt::format("the {} rows of --split_dataset_ratio are more than {} MiB, and not kept in {}",
                                rows.size(), kMost >> 20, path.string()));
    }
    file.line(line);
  }
  file.finish();
}

/// Of evaluation, what is asked for and comes to nothing.
void FineTuneRun::tell_no_evaluation() {
  if (!options_.val_dataset.empty() && options_.split_dataset_ratio > 0) {
    notice("--split_dataset_ratio has no effect: --val_dataset says what is evaluated");
  }
  if (val_rows_) return;
  const bool evaluates = !options_.eval_strategy.empty() && options_.eval_strategy != "no";
  const char* const asked = evaluates                        ? "--eval_strategy"
                            : options_.eval_steps            ? "--eval_steps"
                            : options_.predict_with_generate ? "--predict_with_generate"
                                                             : nullptr;
  if (asked == nullptr) return;
  notice(fmt::format(
      "{} has no effect: there are no rows to evaluate (--val_dataset FILE, or --split_dataset_ratio 0.01)", asked));
}

void FineTuneRun::tell_rows() {
  tell_no_evaluation();
  const std::string left_out = left_out_reason(session_->model());
  if (!left_out.empty()) notice(left_out + ": checkpoints keep their tensors as they are");
  if (session_->model().speech && !options_.rows.speaks) {
    notice(
        "the talker stays as it is, and \"speech\" of rows is not learnt; it reads what the language model makes, so "
        "that a "
        "change of that may change how answers sound: --train llm,talker learns both, ENABLE_AUDIO_OUTPUT=0 leaves it "
        "out");
  }
  if (session_->adapters() && !options_.components.by_name.empty()) {
    notice(
        "--freeze_parameters, --trainable_parameters and their like have no effect: adapters leave the model as it is");
  }
  if (session_->adapters()) notice(describe_adapters(session_->model(), *session_->adapters()));
  for (const auto* rows : {&*train_rows_, val_rows_ ? &*val_rows_ : nullptr}) {
    if (rows == nullptr) continue;
    const std::string media = rows_with_media(job_, session_->model(), *rows);
    if (!media.empty()) notice(media);
    for (const auto& text : rows->notices()) notice(text);
    if (rows->broken().empty()) continue;
    const auto& first = rows->broken().front();
    notice(fmt::format("{} rows cannot be read and are skipped (--strict true stops at the first): {}: {}",
                       rows->broken().size(), first.where, first.why));
  }
}

/// Bins and orders by length stand on the size of every row, which all ranks find out together.
void FineTuneRun::bring_together() {
  const RowGrouping& grouping = options_.grouping;
  grouped_ = {.grouping = grouping, .seed = data_seed(), .shuffle = options_.dataset_shuffle};
  if (!grouping.measures()) return;
  const Session& s = *session_;
  bin_tokens_ = grouping.packing ? grouping.bin_tokens(options_.rows.max_length, s.model().dims.max_positions) : 0;
  grouped_ = group_rows(grouping, measure_rows(job_, *train_rows_, s.processor(), options_.rows, events_), bin_tokens_,
                        data_seed(), options_.dataset_shuffle);
  for (const auto& text : grouped_.notices(bin_tokens_)) notice(text);
}

void FineTuneRun::split_rows() {
  const SplitOptions wanted{.max_length = options_.rows.max_length,
                            .positions = session_->model().dims.max_positions,
                            .bin = options_.grouping.packing ? options_.grouping.packing_length : 0,
                            .plain = !options_.run.use_chat_template,
                            .all = options_.rows.taught.of == Taught::Of::kAll,
                            .threads = options_.rows.num_workers};
  const auto split = [&](std::optional<Dataset>& rows) {
    SplitRows made = split_long_rows(job_, *rows, session_->processor().tokenizer(), wanted, events_);
    for (const auto& text : made.notices()) notice(text);
    return std::exchange(rows, std::move(made.rows));
  };
  split(train_rows_);
  if (val_rows_) whole_val_rows_ = split(val_rows_);
}

RowOrder FineTuneRun::row_order() const {
  RowOrder order{.data_seed = data_seed(), .shuffle = options_.dataset_shuffle, .groups = grouped_.describe()};
  const std::string pieces = train_rows_->describe_pieces();
  if (!pieces.empty()) order.groups += (order.groups.empty() ? "" : ", ") + pieces;
  if (options_.grouping.by_size()) order.chunk = rows_at_once();
  return order;
}

/// Rows of a micro-batch over all ranks, by which an order by length is cut: of a run that goes on, as it began.
int64_t FineTuneRun::rows_at_once() const {
  return resumed_chunk_ > 0 ? resumed_chunk_ : std::max<int64_t>(1, options_.batch.rows) * job_.world.size;
}

CollateOptions FineTuneRun::collate() const {
  CollateOptions collate = session_->collate();
  collate.layout = options_.grouping.layout();
  return collate;
}

/// Template and label mistakes show here, before anything is trained.
void FineTuneRun::check_first_sample() {
  together(job_.control(), "encoding the first row", [&] {
    if (!job_.reports()) return;
    try {
      notice(first_row_text(*session_, *train_rows_, options_.rows, /*prompt=*/false));
    } catch (const UserError& error) {
      if (error.code() != ExitCode::kData) throw;
      if (options_.rows.strict) throw refused_by_strict(error);
      notice("the first row cannot be used: " + std::string(error.what()));
    }
  });
}

LoaderOptions FineTuneRun::loader_options(int64_t batch_size, bool shuffle) const {
  LoaderOptions loader = options_.rows.loader(job_, options_.run, batch_size);
  loader.seed = data_seed();
  loader.shuffle = shuffle;
  return loader;
}

/// What a failed pass has left of gradients is in nobody's way afterwards. Where ranks did not meet there is nothing to wait for.
void FineTuneRun::try_batch(const std::vector<Features>& rows) {
  Executor& executor = session_->executor();
  executor.grads().clear();
  Batch trial = lockstep::collate(rows, collate());
  const Modalities everywhere = trial.modalities;
  const double weight = 1.0 / static_cast<double>(std::max<int64_t>(1, trial.target_tokens));
  try {
    executor.train(std::move(trial.flow),
                   {.training = true, .loss_weight = weight, .label_smoothing = options_.train.label_smoothing},
                   everywhere, everywhere);
  } catch (const CollectiveError&) {
    throw;
  } catch (...) {
    executor.grads().clear();
    throw;
  }
  executor.grads().clear();
}

/// As many copies of the longest row as fit in a forward and a backward pass.
int64_t FineTuneRun::find_batch_size() {
  Session& s = *session_;
  const auto features_of = [&](const Sample& sample) {
    return s.processor().train_features(sample, options_.rows.process());
  };
  std::vector<Features> unit;
  if (grouped_.bins) {
    const auto heaviest = grouped_.heaviest_bins(1);
    for (const int64_t row : heaviest.at(0)) unit.push_back(features_of(train_rows_->sample(row)));
  } else if (auto row = longest_row(*train_rows_, features_of)) {
    unit.push_back(std::move(*row));
  }
  if (unit.empty()) return 1;  // nothing to try it with: every row will be named
  // The optimizer's state is there already. A GPU's memory is cut into blocks, which steps of other shapes take otherwise than
  // the tries: room for as much stays free there, without which the largest size that was tried ran out of memory later (on the fake GPU).
  const int64_t kept_free = job_.on_cpu() ? 0 : s.plan().state_bytes().optimizer;
  const int64_t rows_of_a_rank = (grouped_.units(train_rows_->size()) + job_.world.size - 1) / job_.world.size;
  if (tries_may_part(job_, s.plan())) {
    return foresee_batch_size(job_, options_.batch.memory_fraction, rows_of_a_rank, events_,
                              [&](int64_t batch) { return foreseen_peak(batch) + kept_free; });
  }
  return agree_batch_size(job_, options_.batch.memory_fraction, rows_of_a_rank, events_, [&](int64_t batch) {
    std::vector<Features> rows;
    for (int64_t i = 0; i < batch; ++i) rows.insert(rows.end(), unit.begin(), unit.end());
    try_batch(rows);
    return kept_free;
  });
}

}  // namespace lockstep
