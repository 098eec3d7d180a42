#include "lockstep/doctor/versions.h"

#include <regex>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// "2.11.0" of "2.11.0+cu130".
std::string_view release(std::string_view version) { return version.substr(0, version.find('+')); }

std::string cuda_text(int version) { return fmt::format("{}.{}", version / 10, version % 10); }

constexpr const char* kName = "GPU";

/// The driver is part of the machine, so it is named by the version that people install.
std::string driver_of(const GpuFacts& facts) {
  return facts.kernel_driver.empty() ? "the NVIDIA driver" : fmt::format("the NVIDIA driver {}", facts.kernel_driver);
}

CheckResult too_old(const GpuFacts& facts, const CudaPair& cuda) {
  return failure(kName,
                 fmt::format("{} runs CUDA up to {}, liblockstep_cuda.so was made for CUDA {}", driver_of(facts),
                             cuda_text(cuda.driver), cuda_text(cuda.runtime)),
                 fmt::format("install a driver for CUDA {} or newer (https://www.nvidia.com/drivers), or use --device "
                             "cpu, or build with GPU wheels of CUDA {}.x",
                             cuda_text(cuda.runtime), cuda.driver / 10),
                 ExitCode::kUsage);
}

CheckResult without_library(const GpuFacts& facts) {
  const std::string text = fmt::format("{} GPU{} but no liblockstep_cuda.so beside the program", facts.visible,
                                       facts.visible == 1 ? "" : "s");
  constexpr const char* kBuild = "LOCKSTEP_GPU=1 make build";
  return facts.wanted ? failure(kName, text + ": --device cuda cannot work", kBuild, ExitCode::kUsage)
                      : warning(kName, text + ": ranks run on the CPU", kBuild);
}

}  // namespace

std::optional<CudaPair> parse_cuda(std::string_view text) {
  static const std::regex pattern(R"(CUDA (\d+)\.(\d+), driver (\d+)\.(\d+))");
  std::match_results<std::string_view::const_iterator> match;
  if (!std::regex_search(text.begin(), text.end(), match, pattern)) return std::nullopt;
  const auto version = [&](size_t at) { return std::stoi(match[at].str()) * 10 + std::stoi(match[at + 1].str()); };
  return CudaPair{.runtime = version(1), .driver = version(3)};
}

CheckResult judge_torch(const TorchFacts& facts) {
  const std::string where = facts.library.empty() ? "" : fmt::format(" ({})", facts.library);
  if (facts.loaded.empty()) {
    return fine("LibTorch",
                fmt::format("{} was compiled for; the loaded one does not say its version{}", facts.compiled, where));
  }
  if (release(facts.loaded) == release(facts.compiled)) {
    return fine("LibTorch", fmt::format("{} is loaded, as compiled for{}", facts.loaded, where));
  }
  return failure("LibTorch", fmt::format("compiled for {}, {} is loaded{}", facts.compiled, facts.loaded, where),
                 fmt::format("unset LD_LIBRARY_PATH if it names another LibTorch; else build again: make build (it "
                             "fetches torch {})",
                             release(facts.compiled)),
                 ExitCode::kUsage);
}

CheckResult judge_gpus(const GpuFacts& facts) {
  if (!facts.driver_failure.empty()) {
    return failure(
        kName, "the NVIDIA driver is there, but does not run: " + facts.driver_failure,
        "`nvidia-smi` should say more; on machines with NVSwitch, systemctl status nvidia-fabricmanager; or use "
        "--device cpu",
        ExitCode::kUsage);
  }
  if (facts.visible == 0) {
    if (facts.wanted) {
      return failure(kName,
                     facts.there > 0 ? fmt::format("{} in the machine, none visible to this process", facts.there)
                                     : "none in this machine",
                     facts.there > 0 ? "unset CUDA_VISIBLE_DEVICES, or use --device cpu"
                                     : "use --device cpu, or a machine with an NVIDIA GPU (in a container: --gpus all)",
                     ExitCode::kUsage);
    }
    return fine(
        kName, facts.there > 0
                   ? fmt::format("{} in the machine, hidden by CUDA_VISIBLE_DEVICES: ranks run on the CPU", facts.there)
                   : "none: ranks run on the CPU");
  }
  if (!facts.library_found) return without_library(facts);
  const auto cuda = parse_cuda(facts.versions);
  if (cuda && cuda->driver == 0) {
    return failure(kName, fmt::format("{} GPUs are named, but there is no NVIDIA driver", facts.visible),
                   "install the driver (in a container: --gpus all, and nvidia-container-toolkit on the host); or use "
                   "--device cpu",
                   ExitCode::kUsage);
  }
  // Within one major version of CUDA an older driver runs programs made for a newer one.
  if (cuda && cuda->driver / 10 < cuda->runtime / 10) return too_old(facts, *cuda);
  if (!facts.library_runs) {
    return failure(kName, fmt::format("{} GPUs, but {}", facts.visible, facts.reason),
                   "python3 -m pip install the nvidia wheels anew with LOCKSTEP_GPU=1 make build; nvidia-smi must show "
                   "the GPUs; or use --device cpu",
                   ExitCode::kUsage);
  }
  return fine(kName, fmt::format("{} visible; {}{}", facts.visible, facts.versions,
                                 facts.kernel_driver.empty() ? "" : " (" + facts.kernel_driver + ")"));
}

CheckResult judge_cpu(std::string_view instruction_set, std::string_view processor, bool bfloat16) {
  const std::string text =
      fmt::format("kernels for {} ({}); {}", instruction_set, processor.empty() ? "unknown processor" : processor,
                  bfloat16 ? "fastest dtype: bfloat16"
                           : "bfloat16 and float16 are multiplied in float32, at its speed: fastest dtype: float32");
  if (instruction_set == "AVX-512" || instruction_set == "AVX2") return fine("CPU", text);
  return warning(
      "CPU", text + ": a machine with AVX2 is several times faster",
      "in a virtual machine let the guest see the host's processor (QEMU: -cpu host); else take a newer one");
}

}  // namespace lockstep
