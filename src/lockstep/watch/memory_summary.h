// What was measured of a run's memory beside what was predicted: per device in a line, and as records for files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/json.h"

namespace lockstep {

/// A device of the rank that needed most of it.
struct DevicePeak {
  std::string device;
  size_t index = 0;  // of a rank's devices and its host
  int rank = 0;
  int64_t predicted = 0;  // 0: there is no forecast
  int64_t measured = 0;
  std::string phase, at;  // of the measured peak

  double excess() const;  // 0.05: 5 % more than predicted; 0 where there is no forecast
};

/// Devices in their order, the host behind them.
std::vector<DevicePeak> highest_peaks(const MemoryMeasured& memory);

/// For the terminal: "memory: cuda:0 predicted 1.20 GiB, measured 1.19 GiB (rank 1)", a line a device.
std::vector<std::string> memory_summary(const MemoryMeasured& memory);

/// memory.json: {"step", "predicted": account or null, "peaks": [per device], "ranks": [accounts since the start]}.
Json memory_json(const MemoryMeasured& memory);

/// A line of logging.jsonl: what each rank has needed since the last one. Of many ranks: the highest and the lowest.
Json memory_record(const MemoryMeasured& memory);
inline constexpr const char* kMemoryRecordKey = "memory_by_rank";

}  // namespace lockstep
