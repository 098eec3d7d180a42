#include "lockstep/comm/gpus.h"

#include <map>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {

std::string device_of(const std::string& wanted, int first, const GpuDriver& driver) {
  if (wanted == "cpu") return "cpu";
  if (!driver.failure.empty()) {
    throw usage_error(
        fmt::format("--device {}: the NVIDIA driver is there, but does not run: {}", wanted, driver.failure),
        "`nvidia-smi` should say more; --device cpu goes on without it");
  }
  const auto gpus = static_cast<int>(driver.uuids.size());
  const bool has_library = has_cuda_library();
  if (wanted == "auto" && (gpus == 0 || !has_library)) return "cpu";
  if (!has_library) {
    throw usage_error("--device cuda: expected liblockstep_cuda.so beside the program, found none",
                      "build where the CUDA headers are (LOCKSTEP_GPU=1 make build), or use --device cpu");
  }
  if (gpus == 0) {
    throw usage_error(fmt::format("--device {}: {}", wanted,
                                  driver.there ? "the NVIDIA driver shows no GPU to this process"
                                               : "there is no NVIDIA driver (libcuda.so.1)"),
                      driver.there
                          ? "look at CUDA_VISIBLE_DEVICES and at what the container or the scheduler gives; or use "
                            "--device cpu"
                          : "in a container: --gpus all; or use --device cpu");
  }
  return fmt::format("{}:{}", driver.type, first % gpus);
}

void require_own_gpus(Communicator& control, int node, const std::string& device, const GpuDriver& driver) {
  const auto index = gpu_of(device);
  if (!index) return;
  const bool known = static_cast<size_t>(*index) < driver.uuids.size();
  const std::string mine = fmt::format("{} {}", node, known ? driver.uuids[static_cast<size_t>(*index)] : device);
  std::map<std::string, int> owners;
  const auto all = control.all_gather_bytes(mine, "GPUs of the ranks");
  for (int rank = 0; rank < control.size(); ++rank) {
    const std::string& gpu = all[static_cast<size_t>(rank)];
    const auto [at, first] = owners.emplace(gpu, rank);
    if (first) continue;
    throw usage_error(
        fmt::format(
            "ranks {} and {} drive the same GPU ({}); expected one for each rank, found {} that the driver shows",
            at->second, rank, gpu.substr(gpu.find(' ') + 1), driver.uuids.size()),
        "start fewer ranks (--nproc), or give each its own GPU (under Slurm: --gpus-per-task=1); or use --device cpu");
  }
}

}  // namespace lockstep
