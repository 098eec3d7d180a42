// NCCL between the ranks' GPUs, by LibTorch's process group.
#pragma once

#include <memory>

#include "lockstep/comm/cuda_api.h"
#include "lockstep/comm/device_group.h"

namespace lockstep {

/// Collective: returns when all ranks have come.
std::unique_ptr<DeviceGroup> make_nccl_group(const NcclOptions& options);

}  // namespace lockstep
