// The one door to the network. Every call carries a label, enters the flight ring, and has a deadline. A call that is
// late or broken ends in a CollectiveError: the diagnosis of the roll call where an agent watches, else what this rank
// knows. After that the communicator is dead: only report and leave.
//
// Thread rules: one thread communicates; abort() and ring() may be used from any.
//
// Example:
//   Communicator comm(world, make_backend(...), {.patience = 600s});
//   Pending gathered = comm.all_gather(full, shard, "text.layers.7 gather");
//   …                                                     // overlaps
//   gathered.wait();
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/figures.h"
#include "lockstep/comm/label.h"
#include "lockstep/comm/world.h"
#include "lockstep/guard/recorder.h"

namespace lockstep {

/// Communication failed: what() names the call, this rank, how long it waited, and the calls before it.
class CollectiveError : public Error {
 public:
  CollectiveError(std::string message, std::string hint);

 protected:
  using Error::Error;
};

/// The roll call has ended the job: what() is the diagnosis, the same on every rank, and already told to people.
class JobEnded final : public CollectiveError {
 public:
  explicit JobEnded(const Ending& ending);
};

struct CommOptions {
  Clock::duration patience = std::chrono::minutes(10);  // of each call
  std::shared_ptr<Recorder> recorder{};                 // of this rank; one of its own when there is none
  std::string group = "data";                           // what its calls are listed under
};

/// Counters of what went over the wire, for watch/. Seconds are time blocked in wait().
struct CommCounters {
  int64_t calls = 0, gather_bytes = 0, reduce_bytes = 0, other_bytes = 0;
  double gather_wait_seconds = 0, reduce_wait_seconds = 0, other_wait_seconds = 0;
};

class Communicator;

/// A call under way. Move-only; the destructor waits (and swallows), so a result is never written into freed memory.
/// While an exception unwinds it gives the call up instead: clean-up must not wait for ranks that will not come.
class [[nodiscard]] Pending {
 public:
  Pending() = default;
  ~Pending();
  Pending(Pending&& other) noexcept;
  Pending& operator=(Pending&& other) noexcept;

  void wait();  // throws CollectiveError; a second wait returns at once
  bool active() const { return work_ != nullptr; }

 private:
  friend class Communicator;
  Communicator* comm_ = nullptr;
  std::unique_ptr<Work> work_;
  uint64_t seq_ = 0;
  Op op_ = Op::kBarrier;
  size_t line_ = 0;  // of the figures
  CallCost cost_;
};

class Communicator {
 public:
  Communicator(World world, std::unique_ptr<Backend> backend, CommOptions options = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return world_.rank; }
  int size() const { return world_.size; }
  const World& world() const { return world_; }

  /// See Backend for shapes, dtypes and the order of sums.
  Pending all_gather(const Tensor& full, const Tensor& shard, const Label& label);
  Pending reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate, const Label& label);
  Tensor staging(int64_t numel, int scalar_type);
  int64_t max_staging_bytes() const;  // the largest piece that staging() serves without another copy; same on all ranks

  /// Small values; they return when done.
  void all_reduce_sum(const Tensor& value, const Label& label);
  void all_reduce_max(const Tensor& value, const Label& label);
  void broadcast(const Tensor& value, int root, const Label& label);
  void barrier(const Label& label);

  /// Each rank's bytes (of any length) on all ranks, in rank order.
  std::vector<std::string> all_gather_bytes(std::string_view mine, const Label& label);

  std::string backend_name() const;
  const FlightRing& ring() const { return recorder_->ring(group_); }
  Recorder& recorder() const { return *recorder_; }
  CommCounters counters() const { return counters_; }
  const Figures& figures() const { return figures_; }  // every call by its label; from any thread
  void abort();

 private:
  friend class Pending;
  Pending guarded(const CallSignature& signature, int64_t bytes, const Label& label,
                  const std::function<std::unique_ptr<Work>()>& launch);
  void finish(Pending& pending);
  void give_up(Pending& pending);
  QueuedNews news_of(uint64_t seq) const;
  [[noreturn]] void fail(uint64_t seq, const std::string& why);

  World world_;
  std::unique_ptr<Backend> backend_;
  CommOptions options_;
  std::shared_ptr<Recorder> recorder_;
  int group_;
  CommCounters counters_;
  Figures figures_;
  Clock::duration staging_{};  // waited for room: part of the next call's cost
  std::atomic<bool> dead_{false};
};

}  // namespace lockstep
