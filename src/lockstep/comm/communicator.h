// The one door to the network. Every call carries a label, enters the flight ring, and has a deadline; a late or broken
// call ends in a CollectiveError that names the call. After that the communicator is dead: only report and leave.
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
#include "lockstep/comm/flight_ring.h"
#include "lockstep/comm/world.h"

namespace lockstep {

/// Communication failed: what() names the call, this rank, how long it waited, and the calls before it.
class CollectiveError : public Error {
 public:
  CollectiveError(std::string message, std::string hint);
};

struct CommOptions {
  Clock::duration patience = std::chrono::minutes(10);  // of each call
};

/// Counters of what went over the wire, for watch/. Seconds are time blocked in wait().
struct CommCounters {
  int64_t calls = 0, gather_bytes = 0, reduce_bytes = 0, other_bytes = 0;
  double gather_wait_seconds = 0, reduce_wait_seconds = 0, other_wait_seconds = 0;
};

class Communicator;

/// A call under way. Move-only; the destructor waits (and swallows), so a result is never written into freed memory.
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
  Pending all_gather(const Tensor& full, const Tensor& shard, std::string_view label);
  Pending reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate, std::string_view label);
  Tensor staging(int64_t numel, int scalar_type);
  int64_t max_staging_bytes() const;  // the largest piece that staging() serves without another copy; same on all ranks

  /// Small values; they return when done.
  void all_reduce_sum(const Tensor& value, std::string_view label);
  void all_reduce_max(const Tensor& value, std::string_view label);
  void broadcast(const Tensor& value, int root, std::string_view label);
  void barrier(std::string_view label);

  /// Each rank's bytes (of any length) on all ranks, in rank order.
  std::vector<std::string> all_gather_bytes(std::string_view mine, std::string_view label);

  std::string backend_name() const;
  const FlightRing& ring() const { return ring_; }
  CommCounters counters() const { return counters_; }
  void abort();

 private:
  friend class Pending;
  Pending guarded(const CallSignature& signature, std::string_view label,
                  const std::function<std::unique_ptr<Work>()>& launch);
  void finish(Pending& pending);
  [[noreturn]] void fail(uint64_t seq, const std::string& why);

  World world_;
  std::unique_ptr<Backend> backend_;
  CommOptions options_;
  FlightRing ring_;
  CommCounters counters_;
  std::atomic<bool> dead_{false};
};

}  // namespace lockstep
