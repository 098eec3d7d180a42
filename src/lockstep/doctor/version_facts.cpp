// Where versions are read: LibTorch's from the files beside the loaded library, the driver's from the kernel.
#include <filesystem>
#include <fstream>
#include <regex>

#include <fmt/format.h>
#include <torch/version.h>

#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/gpu_driver.h"
#include "lockstep/doctor/versions.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

/// The first match of the pattern's group in any line; "" when there is none.
std::string search_lines(const fs::path& path, const std::regex& pattern) {
  std::ifstream in(path);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_search(line, match, pattern)) return match[1].str();
  }
  return "";
}

/// As the dynamic linker has it mapped.
fs::path loaded_library(const std::string& name) {
  return search_lines("/proc/self/maps", std::regex("\\s(/.*/" + name + ")$"));
}

/// Device files of GPUs, whatever their numbers: a container may hold /dev/nvidia3 alone.
int gpus_in_dev() {
  const std::regex name("nvidia[0-9]+");
  std::error_code unknown;
  int count = 0;
  for (const auto& entry : fs::directory_iterator("/dev", unknown)) {
    count += std::regex_match(entry.path().filename().string(), name) ? 1 : 0;
  }
  return count;
}

}  // namespace

TorchFacts torch_facts() {
  TorchFacts facts{.compiled = TORCH_VERSION};
  const fs::path library = loaded_library("libtorch_cpu\\.so");
  if (library.empty()) return facts;
  facts.library = library.string();
  const fs::path root = library.parent_path().parent_path();  // of the wheel's torch/, or of an unpacked libtorch/
  facts.loaded = search_lines(root / "version.py", std::regex("^__version__ = '([^']+)'"));
  if (facts.loaded.empty()) facts.loaded = search_lines(root / "build-version", std::regex("^(\\S+)"));
  return facts;
}

GpuFacts gpu_facts(const GpuDriver& driver, bool wanted) {
  const int visible = driver.count();
  GpuFacts facts{.there = gpus_in_dev(),
                 .visible = visible,
                 .wanted = wanted,
                 .library_found = has_cuda_library(),
                 .driver_failure = driver.failure};
  facts.kernel_driver =
      search_lines("/proc/driver/nvidia/version", std::regex("Kernel Module.*?\\s(\\d+\\.\\d[\\d.]*)"));
  if (visible == 0 || !facts.library_found) return facts;
  const CudaApi* cuda = open_cuda_library(facts.reason);
  facts.library_runs = cuda != nullptr;
  facts.versions = cuda != nullptr ? cuda->versions() : facts.reason;  // a library without a GPU says them too
  return facts;
}

std::string processor_name() { return search_lines("/proc/cpuinfo", std::regex("^model name\\s*:\\s*(.*)$")); }

}  // namespace lockstep
