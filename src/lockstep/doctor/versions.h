// The program, LibTorch, and the GPU's parts: which they are, and whether they fit each other.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/doctor/check_report.h"

namespace lockstep {

struct GpuDriver;

struct TorchFacts {
  std::string compiled;  // "2.11.0"
  std::string loaded;    // "2.11.0+cu130"; empty: nothing beside the library says it
  std::string library;   // its path; empty: it is part of the program
};

struct GpuFacts {
  int there = 0;        // in the machine
  int visible = 0;      // to this process: CUDA_VISIBLE_DEVICES
  bool wanted = false;  // --device cuda
  bool library_found = false;
  bool library_runs = false;   // it was loaded, and sees a GPU
  std::string reason;          // why it does not run
  std::string versions;        // "CUDA 13.0, driver 13.0, NCCL 2.28.9", as far as known
  std::string driver_failure;  // what the driver says where it does not run
  std::string kernel_driver;   // "580.65.06"; empty: no NVIDIA driver in the kernel
};

/// CUDA versions as 10 * major + minor: what the library was made for, and the newest that the driver runs.
struct CudaPair {
  int runtime = 0, driver = 0;
};
/// From a text that holds "CUDA 13.0, driver 12.4"; nullopt when it does not.
std::optional<CudaPair> parse_cuda(std::string_view text);

CheckResult judge_torch(const TorchFacts& facts);
CheckResult judge_gpus(const GpuFacts& facts);
/// `instruction_set` as kernels::instruction_set() names it.
/// `bfloat16`: whether the processor multiplies that by itself.
CheckResult judge_cpu(std::string_view instruction_set, std::string_view processor, bool bfloat16);

TorchFacts torch_facts();
/// Opens the CUDA library where a GPU is visible: before any CUDA tensor is made.
GpuFacts gpu_facts(const GpuDriver& driver, bool wanted);
std::string processor_name();  // of /proc/cpuinfo

}  // namespace lockstep
