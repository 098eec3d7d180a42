#include "lockstep/session/row_sizes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/worker.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/together.h"

namespace lockstep {
namespace {

/// Rows of a rank between two calls in which ranks tell each other: none waits long for another.
constexpr int64_t kShare = 256;

/// What one rank found in its share of a round.
class Share {
 public:
  Share(const Dataset& data, const Processor& processor, const RowOptions& rows, int64_t begin, int64_t end)
      : data_(data), processor_(processor), rows_(rows), begin_(begin), sizes_(static_cast<size_t>(end - begin)) {}

  void measure() {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 1; i < std::min<int64_t>(rows_.num_workers, std::ssize(sizes_)); ++i) {
      workers.push_back(std::make_unique<Worker>("row-sizes", [this](const std::stop_token&) { take_rows(); }));
    }
    take_rows();
    for (auto& worker : workers) worker->join();
  }

  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(sizes_.data()), sizes_.size() * sizeof(RowSize)};
  }
  const std::string& reason() const { return reason_; }

 private:
  void take_rows() {
    for (int64_t i = next_++; i < std::ssize(sizes_); i = next_++) {
      try {
        sizes_[static_cast<size_t>(i)] = size_of(processor_.train_features(data_.sample(begin_ + i), rows_.process()));
      } catch (const UserError& error) {
        if (error.code() != ExitCode::kData) throw;
        if (rows_.strict) throw refused_by_strict(error);
        const std::lock_guard lock(mutex_);
        if (reason_.empty()) reason_ = error.what();
      }
    }
  }

  const Dataset& data_;
  const Processor& processor_;
  const RowOptions& rows_;
  int64_t begin_;
  std::vector<RowSize> sizes_;
  std::atomic<int64_t> next_{0};
  std::mutex mutex_;  // of reason_
  std::string reason_;
};

}  // namespace

int64_t MeasuredRows::longest() const {
  return sizes.empty() ? 0 : std::ranges::max_element(sizes, {}, &RowSize::tokens)->tokens;
}

int64_t MeasuredRows::tokens() const {
  int64_t sum = 0;
  for (const auto& size : sizes) sum += size.tokens;
  return sum;
}

MeasuredRows measure_rows(Job& job, const Dataset& data, const Processor& processor, const RowOptions& rows,
                          const EventBus& events) {
  MeasuredRows out;
  out.sizes.reserve(static_cast<size_t>(data.size()));
  Communicator& control = job.control();
  for (int64_t done = 0; done < data.size();) {
    const int64_t round = std::min(data.size() - done, kShare * job.world.size);
    const auto border = [&](int64_t rank) { return done + round * rank / job.world.size; };
    Share mine(data, processor, rows, border(job.world.rank), border(job.world.rank + 1));
    together(control, "measuring rows", [&] {
      const PhaseScope scope(control.recorder(), Phase::kData, data.where(done));
      mine.measure();
    });
    for (const auto& share : control.all_gather_bytes(mine.bytes(), "row sizes")) {
      const size_t count = share.size() / sizeof(RowSize);
      out.sizes.resize(out.sizes.size() + count);
      std::memcpy(out.sizes.data() + out.sizes.size() - count, share.data(), share.size());
    }
    for (const auto& reason : control.all_gather_bytes(mine.reason(), "rows without a size")) {
      if (out.reason.empty()) out.reason = reason;
    }
    done += round;
    events.emit(Progress{.phase = "measure rows", .done = done, .total = data.size()});
  }
  check(std::ssize(out.sizes) == data.size(), "every row was measured once");
  out.unusable = std::ranges::count(out.sizes, 0, &RowSize::tokens);
  return out;
}

}  // namespace lockstep
