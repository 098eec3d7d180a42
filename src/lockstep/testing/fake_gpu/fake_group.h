// Collectives between fake GPUs, in the manner of NCCL's: queued on a stream of their own, over when the device is. The ranks
// are threads of one process, or processes of one machine.
#pragma once

#include <memory>

#include "lockstep/comm/cuda_api.h"
#include "lockstep/comm/device_group.h"

namespace lockstep {

/// Collective, as make_nccl_group is.
std::unique_ptr<DeviceGroup> make_fake_group(const NcclOptions& options);

/// What takes the CUDA library's place where GPUs are fake (comm/cuda_library.h).
const CudaApi& fake_cuda_api();

}  // namespace lockstep
