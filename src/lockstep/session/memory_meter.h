// Memory of all ranks, measured: what each device has counted, what the process holds, beside what was predicted.
//
// Example:
//   MemoryMeter meter(job, session.store().devices(), idle_bytes, forecast.account());
//   events.emit(meter.measure("3 rows of 58 tokens"));        // on every rank at the same place
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/session/job.h"
#include "lockstep/tensor/devices.h"

namespace lockstep {

/// Memory that all ranks of a host read, once for all of them.
struct SharedBytes {
  int64_t all = 0, of_this_rank = 0;  // which it answers for
};

class MemoryMeter {
 public:
  /// Of what has been so far only the loading counts: not trials that looked for a batch size. `idle_bytes`: resident
  /// before there was a weight, files apart. `predicted`: of the reporting rank; may be empty. `devices` must outlive it.
  MemoryMeter(Job& job, const Devices& devices, int64_t idle_bytes, MemoryAccount predicted, SharedBytes shared = {});

  /// Peaks of devices begin anew. `ranks` is filled on the reporting rank only. Collective.
  MemoryMeasured measure(const std::string& largest_batch);

 private:
  RankMemory of_this_rank(const std::string& largest_batch);
  DeviceAccount account(const DeviceMemory& device) const;
  void begin_anew();
  std::vector<std::shared_ptr<DeviceMemory>> everything() const;  // devices, then the host where it is none of them
  bool on_gpu() const { return !job_.on_cpu(); }

  Job& job_;
  const Devices& devices_;
  int64_t idle_bytes_;
  MemoryAccount predicted_;
  SharedBytes shared_;
  std::vector<DeviceAccount> since_start_;
};

}  // namespace lockstep
