// Which GPU a rank drives, of those that the CUDA driver shows to its process.
#pragma once

#include <string>

#include "lockstep/comm/gpu_driver.h"

namespace lockstep {

class Communicator;

/// "cpu", or "cuda:N". `wanted`: auto, cpu, cuda. `first`: local rank times GPUs a rank. Where a scheduler shows each rank its
/// own GPUs alone, they begin at 0 for every rank: require_own_gpus() finds ranks that were shown the same ones.
/// Throws UserError(kUsage) when cuda is wanted and there is no GPU or no CUDA part, or when the driver is there and does not
/// run: to go on without it is the user's to say.
std::string device_of(const std::string& wanted, int first, const GpuDriver& driver = GpuDriver::of_process());

/// Throws UserError(kUsage) on every rank when two of a node drive the same GPU, naming them. Collective over `control`.
void require_own_gpus(Communicator& control, int node, const std::string& device,
                      const GpuDriver& driver = GpuDriver::of_process());

}  // namespace lockstep
