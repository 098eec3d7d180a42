#include "lockstep/comm/gpus.h"

#include <filesystem>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/cuda_library.h"

namespace lockstep {
namespace {

bool has_cuda_library() { return !cuda_library_path().empty(); }

}  // namespace

int visible_gpus(const Env& env) {
  const auto& all = env.all();
  const auto listed = all.find("CUDA_VISIBLE_DEVICES");
  if (listed != all.end()) {
    int count = 0;
    for (const auto& name : split(listed->second, ',')) {
      if (name == "-1") break;
      count += name.empty() ? 0 : 1;
    }
    return count;
  }
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count))) ++count;
  return count;
}

std::string device_of(const std::string& wanted, int local_rank, const Env& env) {
  if (wanted == "cpu") return "cpu";
  const int gpus = visible_gpus(env);
  if (wanted == "auto" && (gpus == 0 || !has_cuda_library())) return "cpu";
  if (!has_cuda_library()) {
    throw usage_error("--device cuda: expected liblockstep_cuda.so beside the program, found none",
                      "build where the CUDA headers are (LOCKSTEP_GPU=1 make build), or use --device cpu");
  }
  if (local_rank >= gpus) {
    throw usage_error(
        fmt::format("--device {}: local rank {} needs GPU {}, found {} GPUs", wanted, local_rank, local_rank, gpus),
        "start fewer ranks with --nproc, or use --device cpu");
  }
  return fmt::format("cuda:{}", local_rank);
}

}  // namespace lockstep
