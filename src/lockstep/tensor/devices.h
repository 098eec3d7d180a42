// The devices that one process drives: blocks stand on `blocks`, what is offloaded and the batch stand on `host`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/tensor/device_memory.h"

namespace lockstep {

struct Devices {
  std::vector<std::shared_ptr<DeviceMemory>> blocks;
  std::shared_ptr<DeviceMemory> host;

  const std::shared_ptr<DeviceMemory>& at(int device) const;  // a number below 0: the host

  /// "cpu": the host itself; "cuda:1".
  static Devices one(const std::string& torch_device);
  /// Parts of the host's memory, "virtual:0" …, with `limit` bytes each.
  static Devices virtual_ones(int count, int64_t limit = DeviceMemory::kNoLimit);
  /// For a rehearsal: devices that count and hold nothing, and a host alike; `host_too`: the one device is the host.
  static Devices rehearsed(int count, const DeviceMemory::Options& like, bool host_too);
};

/// The tensor itself when it stands there, else a copy of it there.
Tensor move_to(const Tensor& tensor, const std::shared_ptr<DeviceMemory>& device);

}  // namespace lockstep
