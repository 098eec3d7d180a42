#include "lockstep/session/row_sizes.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/session/shared_rows.h"

namespace lockstep {

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
  std::mutex mutex;  // of the reason
  std::string reason;
  const auto of_row = [&](int64_t row) {
    RowSize size;
    try {
      size = size_of(processor.train_features(data.sample(row), rows.process()));
    } catch (const UserError& error) {
      if (error.code() != ExitCode::kData) throw;
      if (rows.strict) throw refused_by_strict(error);
      const std::lock_guard lock(mutex);
      if (reason.empty()) reason = error.what();
    }
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size));
  };
  const std::string bytes =
      of_all_rows(job, {.data = data, .threads = rows.num_workers, .what = "measuring rows", .phase = "measure rows"},
                  events, of_row);
  MeasuredRows out;
  out.sizes.resize(bytes.size() / sizeof(RowSize));
  std::memcpy(out.sizes.data(), bytes.data(), bytes.size());
  check(std::ssize(out.sizes) == data.size(), "every row was measured once");
  for (const auto& one : job.control().all_gather_bytes(reason, "rows without a size")) {
    if (out.reason.empty()) out.reason = one;
  }
  out.unusable = std::ranges::count(out.sizes, 0, &RowSize::tokens);
  return out;
}

}  // namespace lockstep
