#include "lockstep/data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interruption.h"
#include "lockstep/base/worker.h"

namespace lockstep {

namespace {

constexpr size_t kMaxReasons = 20;

/// A micro-batch as a worker leaves it, or the error that ended it.
struct Prepared {
  LoadedBatch batch;
  std::exception_ptr error;
};

}  // namespace

struct Loader::Impl {
  Impl(const Dataset& d, const Processor& p, const LoaderOptions& o) : dataset(d), processor(p), options(o) {}

  const Dataset& dataset;
  const Processor& processor;
  const LoaderOptions options;

  // Behind `mutex`: what workers and the consumer share. A seek begins a new generation; what workers still prepare
  // for an older one is dropped.
  std::mutex mutex;
  std::condition_variable_any work_changed, ready_changed;
  uint64_t generation = 0;
  LoaderCursor start;  // where batch 0 of this generation begins
  std::shared_ptr<const std::vector<int64_t>> order;
  int64_t claimed = 0, delivered = 0;  // batches of this generation
  std::map<int64_t, Prepared> ready;

  // The consumer's own.
  int64_t skipped = 0;
  std::vector<std::string> reasons;

  std::vector<std::unique_ptr<Worker>> workers;  // last: joined before the rest goes

  int64_t rows_per_batch() const { return options.batch_size * options.world; }
  int64_t rows_there_are() const {
    if (options.order) return static_cast<int64_t>(options.order->size());
    return options.bins ? static_cast<int64_t>(options.bins->size()) : dataset.size();
  }
  /// By what is left from there on: batches of before may have been others, and must not leave a short one, nor take away
  /// rows that still fill one.
  int64_t epoch_end(int64_t rows) const {
    const int64_t all = rows_there_are();
    return options.drop_last ? all - (all - rows) % rows_per_batch() : all;
  }
  std::vector<int64_t> order_of(int64_t epoch) const {
    if (options.order) return *options.order;
    if (options.arranged) return options.arranged(epoch);
    return epoch_order(rows_there_are(), options.seed, epoch, options.shuffle);
  }
  int64_t batches_from(int64_t rows) const {
    return (epoch_end(rows) - rows + rows_per_batch() - 1) / rows_per_batch();
  }

  void seek(const LoaderCursor& cursor);
  Prepared prepare(const LoaderCursor& from, const std::vector<int64_t>& rows_in_order) const;
  void prepare_row(int64_t row, Prepared& out) const;
  void work(const std::stop_token& stop);
  Prepared take(int64_t batch);
};

void Loader::Impl::seek(const LoaderCursor& cursor) {
  if (cursor.epoch < 0 || cursor.rows < 0 || cursor.rows > rows_there_are()) {
    throw checkpoint_error(fmt::format("data cursor: expected epoch >= 0 and 0 to {} rows, found epoch {}, row {}",
                                       rows_there_are(), cursor.epoch, cursor.rows),
                           "was the checkpoint written with another data set?");
  }
  auto fresh = std::make_shared<const std::vector<int64_t>>(order_of(cursor.epoch));
  {
    const std::lock_guard lock(mutex);
    ++generation;
    start = cursor;
    order = std::move(fresh);
    claimed = delivered = 0;
    ready.clear();
  }
  work_changed.notify_all();
}

void Loader::Impl::prepare_row(int64_t row, Prepared& out) const {
  try {
    const Sample sample = dataset.sample(row);
    out.batch.rows.push_back(options.prompts ? processor.prompt_features(sample, options.process)
                                             : processor.train_features(sample, options.process));
  } catch (const UserError& error) {
    if (error.code() != ExitCode::kData) throw;
    if (options.strict) throw refused_by_strict(error);
    out.batch.skipped.push_back({row, error.what()});
  }
}

Prepared Loader::Impl::prepare(const LoaderCursor& from, const std::vector<int64_t>& rows_in_order) const {
  Prepared out;
  const int64_t end_of_all = std::min(from.rows + rows_per_batch(), epoch_end(from.rows));
  out.batch.after = {.epoch = from.epoch, .rows = end_of_all};
  const int64_t begin = from.rows + options.rank * options.batch_size;
  try {
    for (int64_t i = begin; i < std::min(begin + options.batch_size, end_of_all); ++i) {
      const int64_t one = rows_in_order[static_cast<size_t>(i)];
      if (!options.bins) {
        prepare_row(one, out);
        continue;
      }
      for (const int64_t row : (*options.bins)[static_cast<size_t>(one)]) prepare_row(row, out);
    }
  } catch (...) {
    out.error = std::current_exception();
  }
  return out;
}

void Loader::Impl::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  while (true) {
    const auto has_work = [&] { return claimed < batches_from(start.rows) && claimed < delivered + options.prefetch; };
    if (!work_changed.wait(lock, stop, has_work) || stop.stop_requested()) return;
    const int64_t batch = claimed++;
    const uint64_t mine = generation;
    const LoaderCursor from{.epoch = start.epoch, .rows = start.rows + batch * rows_per_batch()};
    const auto rows_in_order = order;
    lock.unlock();
    Prepared prepared = prepare(from, *rows_in_order);
    lock.lock();
    if (mine != generation) continue;
    ready.emplace(batch, std::move(prepared));
    ready_changed.notify_all();
  }
}

Prepared Loader::Impl::take(int64_t batch) {
  std::unique_lock lock(mutex);
  const auto is_ready = [&] { return ready.contains(batch); };
  if (!ready_changed.wait_for(lock, std::chrono::seconds(options.patience_s), is_ready)) {
    throw data_error(
        fmt::format("loader: rank {} waited {} s for micro-batch {} of epoch {} (place {} in its order)", options.rank,
                    options.patience_s, batch, start.epoch, start.rows + batch * rows_per_batch()),
        "does an image lie on storage that hangs?");
  }
  Prepared prepared = std::move(ready.at(batch));
  ready.erase(batch);
  return prepared;
}

Loader::Loader(const Dataset& dataset, const Processor& processor, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(dataset, processor, options)) {
  check(options.batch_size > 0 && options.world > 0 && options.rank >= 0 && options.rank < options.world &&
            options.num_workers >= 0 && options.prefetch > 0 && options.patience_s > 0,
        fmt::format("Loader: batch_size {}, rank {} of {}, {} workers, prefetch {}", options.batch_size, options.rank,
                    options.world, options.num_workers, options.prefetch));
  impl_->seek({});
  for (int i = 0; i < options.num_workers; ++i) {
    impl_->workers.push_back(std::make_unique<Worker>(
        fmt::format("loader-{}", i), [impl = impl_.get()](const std::stop_token& stop) { impl->work(stop); }));
  }
}

Loader::~Loader() {
  for (auto& worker : impl_->workers) worker->request_stop();  // all at once, so that they end side by side
}

std::optional<LoadedBatch> Loader::next() {
  interruption_point();
  int64_t batch = 0;
  LoaderCursor from;
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->delivered >= impl_->batches_from(impl_->start.rows)) return std::nullopt;
    batch = impl_->delivered;
    from = {.epoch = impl_->start.epoch, .rows = impl_->start.rows + batch * impl_->rows_per_batch()};
  }
  Prepared prepared = impl_->options.num_workers == 0 ? impl_->prepare(from, *impl_->order) : impl_->take(batch);
  {
    const std::lock_guard lock(impl_->mutex);
    ++impl_->delivered;
  }
  impl_->work_changed.notify_one();

  impl_->skipped += static_cast<int64_t>(prepared.batch.skipped.size());
  for (const auto& row : prepared.batch.skipped) {
    if (impl_->reasons.size() < kMaxReasons) impl_->reasons.push_back(row.why);
  }
  if (prepared.error) std::rethrow_exception(prepared.error);
  return std::move(prepared.batch);
}

void Loader::seek(const LoaderCursor& cursor) { impl_->seek(cursor); }

LoaderCursor Loader::cursor() const {
  const std::lock_guard lock(impl_->mutex);
  const int64_t rows = impl_->start.rows + impl_->delivered * impl_->rows_per_batch();
  return {.epoch = impl_->start.epoch, .rows = std::min(rows, impl_->epoch_end(impl_->start.rows))};
}

std::string Loader::next_places() const {
  constexpr int64_t kMost = 4;
  const std::lock_guard lock(impl_->mutex);
  const int64_t begin =
      impl_->start.rows + impl_->delivered * impl_->rows_per_batch() + impl_->options.rank * impl_->options.batch_size;
  std::string text;
  const int64_t end = std::min({begin + impl_->options.batch_size, begin + kMost, impl_->epoch_end(impl_->start.rows)});
  for (int64_t i = begin; i < end; ++i) {
    const int64_t one = (*impl_->order)[static_cast<size_t>(i)];
    const auto& bins = impl_->options.bins;
    text += (text.empty() ? "" : ", ") + impl_->dataset.where(bins ? (*bins)[static_cast<size_t>(one)].front() : one);
  }
  return text;
}

int64_t Loader::batches_per_epoch() const { return impl_->batches_from(0); }
int64_t Loader::rows_per_epoch() const { return impl_->epoch_end(0); }
int64_t Loader::epoch_end(int64_t rows) const { return impl_->epoch_end(rows); }
int64_t Loader::skipped_rows() const { return impl_->skipped; }
std::vector<std::string> Loader::skipped_reasons() const { return impl_->reasons; }

}  // namespace lockstep
