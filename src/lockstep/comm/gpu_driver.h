// What the CUDA driver shows to this process. It is asked by itself, without LibTorch's CUDA half, so that a launcher knows
// how many ranks to start. CUDA_VISIBLE_DEVICES in any spelling, containers, MIG and cgroups are the driver's business,
// and what it answers is what CUDA will see.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct GpuDriver {
  bool there = false;              // libcuda.so.1 is installed
  std::string failure;             // why it does not run, in its own words; empty where it runs or sees no GPU
  std::vector<std::string> uuids;  // of the GPUs that it shows, in CUDA's order: "GPU-5b0c…"

  std::string type = "cuda";  // LibTorch's word for such a device

  int count() const { return static_cast<int>(uuids.size()); }

  /// Starts the driver and asks it. `library`: what to open.
  static GpuDriver ask(const std::string& library = "libcuda.so.1");
  /// As above, asked once a process: the driver reads the environment at its first start alone.
  static const GpuDriver& of_process();
  /// What of_process() says from now on; nullptr: what the driver does. For tests.
  static void use_in_process(const GpuDriver* instead);
};

}  // namespace lockstep
