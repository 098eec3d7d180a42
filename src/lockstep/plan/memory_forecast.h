// What a step will need, before there is a tensor: per device and phase, by use, and where the peak is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/memory_account.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep {

struct DeviceForecast {
  std::string name;
  int64_t capacity = 0;  // bytes it has; 0: not known
  MemoryFigures figures;

  int64_t peak() const { return figures.peak().bytes; }
  bool fits() const { return capacity == 0 || peak() <= capacity; }
};

/// Of one rank: all ranks hold alike, and the batch is the largest that any of them gets.
struct MemoryForecast {
  std::vector<DeviceForecast> devices;  // those that blocks stand on
  DeviceForecast host;                  // what is offloaded, and the batch; empty where the device is the host
  int64_t context_bytes = 0;            // of each device, beside what is counted: the runtime of a GPU
  int64_t waiting_bytes = 0;            // in the host's memory, beside what is counted: rows that are ready and wait
  int64_t process_bytes = 0;            // there, where the host is the device: what no tensor holds
  std::string batch;                    // what was rehearsed, in words

  int64_t peak() const;      // of the device that needs most
  int64_t needed() const;    // the same with what is beside
  double imbalance() const;  // most over least; infinity: a device that holds nothing
  bool fits() const;         // every device and the host, with what is beside
  MemoryAccount account() const;
  Json as_json() const;       // "memory" of plan.json; memory_account_from() reads it
  std::string print() const;  // a table for people; "" of an empty one
};

/// A device's figures as plain values. Phases in which nothing was held are left out.
DeviceAccount account_of(std::string name, int64_t capacity, const MemoryFigures& figures);

}  // namespace lockstep
