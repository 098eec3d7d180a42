#include "lockstep/session/shared_rows.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "lockstep/base/worker.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/together.h"

namespace lockstep {
namespace {

/// Rows of a rank between two calls in which ranks tell each other: none waits long for another.
constexpr int64_t kShare = 256;

std::string of_share(int64_t begin, int64_t end, int threads, const std::function<std::string(int64_t)>& of_row) {
  std::vector<std::string> found(static_cast<size_t>(end - begin));
  std::atomic<int64_t> next{begin};
  const auto take_rows = [&] {
    for (int64_t row = next++; row < end; row = next++) found[static_cast<size_t>(row - begin)] = of_row(row);
  };
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 1; i < std::min<int64_t>(threads, end - begin); ++i)
    workers.push_back(std::make_unique<Worker>("rows", [&](const std::stop_token&) { take_rows(); }));
  take_rows();
  for (auto& worker : workers) worker->join();
  std::string all;
  for (const auto& one : found) all += one;
  return all;
}

}  // namespace

std::string of_all_rows(Job& job, const SharedRows& rows, const EventBus& events,
                        const std::function<std::string(int64_t row)>& of_row) {
  std::string out;
  Communicator& control = job.control();
  const int64_t size = rows.data.size();
  for (int64_t done = 0; done < size;) {
    const int64_t round = std::min(size - done, kShare * job.world.size);
    const auto border = [&](int64_t rank) { return done + round * rank / job.world.size; };
    std::string mine;
    together(control, rows.what, [&] {
      const PhaseScope scope(control.recorder(), Phase::kData, rows.data.where(done));
      mine = of_share(border(job.world.rank), border(job.world.rank + 1), rows.threads, of_row);
    });
    for (const auto& share : control.all_gather_bytes(mine, rows.what)) out += share;
    done += round;
    events.emit(Progress{.phase = rows.phase, .done = done, .total = size});
  }
  return out;
}

}  // namespace lockstep
