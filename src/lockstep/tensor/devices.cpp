#include "lockstep/tensor/devices.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {

const std::shared_ptr<DeviceMemory>& Devices::at(int device) const {
  check(device < static_cast<int>(blocks.size()), "a device that there is");
  return device < 0 ? host : blocks[static_cast<size_t>(device)];
}

Devices Devices::one(const std::string& torch_device) {
  if (torch_device == "cpu") return {{DeviceMemory::host()}, DeviceMemory::host()};
  if (gpu_of(torch_device)) take_memory_of_products(torch_device);
  return {{DeviceMemory::make(torch_device, {.torch_device = torch_device, .rounding = kGpuRounding})},
          DeviceMemory::host()};
}

Devices Devices::virtual_ones(int count, int64_t limit) {
  Devices devices{{}, DeviceMemory::host()};
  for (int i = 0; i < count; ++i) {
    devices.blocks.push_back(DeviceMemory::make(fmt::format("virtual:{}", i), {.limit = limit}));
  }
  return devices;
}

Devices Devices::rehearsed(int count, const DeviceMemory::Options& like, bool host_too) {
  DeviceMemory::Options options = like;
  options.torch_device = "meta";
  Devices devices{{}, DeviceMemory::make("host", options)};
  for (int i = 0; i < count; ++i) {
    devices.blocks.push_back(host_too ? devices.host : DeviceMemory::make(fmt::format("device {}", i), options));
  }
  return devices;
}

Tensor move_to(const Tensor& tensor, const std::shared_ptr<DeviceMemory>& device) {
  if (!tensor.defined() || DeviceMemory::of(tensor) == device) return tensor;
  const OnDevice scope(device);
  if (device->rehearsed()) return tensor.clone();  // with values where there are some
  const c10::Device target(device->torch_device());
  return tensor.device() == target ? tensor.clone() : sent_to(tensor, target);
}

}  // namespace lockstep
