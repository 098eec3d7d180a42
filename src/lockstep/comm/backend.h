// The seam to the wires: Gloo, shared memory between ranks of one host, NCCL (in liblockstep_cuda.so), solo.
// Only Communicator calls it. Every rank makes the same calls in the same order with the same sizes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

/// How a transport spent a call after its launch. Not told: the flag stays false.
struct TransportTimes {
  Clock::duration busy{};  // moving bytes, or waiting for those of others
  Clock::duration late{};  // of that, waiting for ranks that had not come
  bool busy_told = false, late_told = false;
};

/// What is told of a call that is queued on a device, by any thread.
struct QueuedNews {
  std::function<void()> passed;                        // once: the device is past it
  std::function<void(Clock::time_point since)> waits;  // again and again, while the device has stood in it for long
};

/// A launched call. finish() returns when the result is in place; throws CommTimeout after `patience`, any other
/// exception when the transport failed. Called once, in launch order or any other, by the thread that launched.
class Work {
 public:
  virtual ~Work() = default;
  virtual void finish(Clock::duration patience) = 0;
  /// Whether finish() only orders what follows on a device behind the call, which may still be under way.
  virtual bool queued() const { return false; }
  /// After finish() of a queued one.
  virtual void follow(QueuedNews news) {
    const QueuedNews told = std::move(news);
    told.passed();
  }
  /// After finish(), where the transport knows.
  virtual TransportTimes times() const { return {}; }
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// full[size * n] := the ranks' shards [n] in rank order. Same dtype. `shard` may be a slice of `full`.
  virtual std::unique_ptr<Work> all_gather(const Tensor& full, const Tensor& shard) = 0;

  /// sum[n] (float32) := or += the ranks' staged[rank*n .. (rank+1)*n), added in rank order 0, 1, 2 … in float32, so
  /// that the bits do not depend on the transport. staged [size * n] may be f32, bf16 or f16 and must stay untouched
  /// until finish(). With `accumulate` the sum over ranks is formed first and then added to what `sum` holds.
  virtual std::unique_ptr<Work> reduce_scatter(const Tensor& sum, const Tensor& staged, bool accumulate) = 0;

  /// In place, for small host tensors (f64, i64, f32): sum in rank order, or maximum.
  virtual std::unique_ptr<Work> all_reduce(const Tensor& value, bool maximum) = 0;

  virtual std::unique_ptr<Work> broadcast(const Tensor& value, int root) = 0;

  /// Memory for reduce_scatter's `staged` from which this transport sends without another copy: `numel` elements of
  /// dtype (as at::ScalarType number). At most `max_staging_bytes` in one piece. Valid until the reduce that uses it
  /// has finished.
  virtual Tensor staging(int64_t numel, int scalar_type) = 0;

  /// The most bytes that staging() gives in one piece.
  virtual int64_t max_staging_bytes() const = 0;

  virtual std::string name() const = 0;

  /// Makes every pending and later call throw, on this rank, from any thread; peers see the connection end.
  virtual void abort() = 0;
};

/// Thrown by Work::finish when the patience is over. `detail` says who is late, where the transport knows: "rank 2 has
/// not come".
struct CommTimeout {
  std::string detail;
};

}  // namespace lockstep
