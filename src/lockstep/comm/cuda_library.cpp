#include "lockstep/comm/cuda_library.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/comm/device_group.h"
#include "lockstep/comm/rendezvous_store.h"
#include "lockstep/comm/world.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpu_kernels.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {
namespace {

constexpr const char* kLibrary = "liblockstep_cuda.so";

/// The file that holds this code: our program, or a shared object that another has loaded, as Python does.
std::filesystem::path own_file() {
  Dl_info info{};
  link_map* object = nullptr;
  const auto* here = reinterpret_cast<const void*>(&own_file);
  if (::dladdr1(here, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0) return {};
  // The program itself has no name there, and dladdr's is what it was called by: "lockstep", where PATH has found it.
  const std::string name = object->l_name;
  return name.empty() ? own_executable() : std::filesystem::path(name);
}

std::atomic<const CudaApi*>& instead() {
  static std::atomic<const CudaApi*> table{nullptr};
  return table;
}

/// The library's table, as open_cuda_library() tells of it.
const CudaApi* opened_library(std::string& why) {
  const auto path = cuda_library_path();
  if (path.empty()) {
    why = fmt::format("{} is neither beside the program nor in lib or ../lib", kLibrary);
    return nullptr;
  }
  // Blocks that grow leave no holes where rows of all lengths come and go. PYTORCH_ALLOC_CONF comes before it.
  ::setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", /*overwrite=*/0);
  // Global, because LibTorch looks for its CUDA part among all names of the process.
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    why = fmt::format("{} cannot be loaded: {}", path.string(), ::dlerror());
    return nullptr;
  }
  using Entry = const CudaApi* (*)();
  const auto entry = reinterpret_cast<Entry>(::dlsym(library, "lockstep_cuda_api"));
  const CudaApi* api = entry == nullptr ? nullptr : entry();
  if (api == nullptr || api->version != CudaApi::kVersion) {
    why = fmt::format("{} is of another version: expected {}, found {}", path.string(), CudaApi::kVersion,
                      api == nullptr ? 0 : api->version);
    return nullptr;
  }
  if (api->device_count() == 0) {
    why = fmt::format("the CUDA driver shows no GPU to this process ({})", api->versions());
    return nullptr;
  }
  try {
    api->kernel_launcher();
  } catch (const std::exception& error) {
    why = error.what();
    return nullptr;
  }
  return api;
}

/// What LibTorch is to do with GPUs, before it does anything with them.
void prepare(const CudaApi& api) {
  static std::atomic<const CudaApi*> prepared{nullptr};
  if (prepared.exchange(&api) == &api) return;
  // cuDNN's attention makes a plan for every new shape, and rows have all lengths: flash attention has one for all.
  at::globalContext().setSDPUseCuDNN(false);
  api.follow_memory(&DeviceMemory::gpu_gave, &DeviceMemory::gpu_took);
  gpu::use_launcher(api.kernel_launcher());
}

}  // namespace

std::filesystem::path cuda_library_path() {
  std::error_code unknown;
  const auto folder = own_file().parent_path();
  if (folder.empty()) return {};
  for (const auto& place : {folder / kLibrary, folder / "lib" / kLibrary, folder.parent_path() / "lib" / kLibrary}) {
    if (std::filesystem::exists(place, unknown)) return place;
  }
  return {};
}

bool has_cuda_library() { return instead() != nullptr || !cuda_library_path().empty(); }

const CudaApi* open_cuda_library(std::string& why) {
  const CudaApi* const api = instead() != nullptr ? instead().load() : opened_library(why);
  if (api != nullptr) prepare(*api);
  return api;
}

const CudaApi& require_cuda_library() {
  std::string why;
  const CudaApi* api = open_cuda_library(why);
  if (api == nullptr) {
    throw usage_error("no GPU can be used: " + why, "use --device cpu, or build where the CUDA headers and wheels are");
  }
  return *api;
}

void use_cuda_library(const CudaApi* table) { instead() = table; }

void limit_gpu(const std::string& device, int64_t bytes) {
  const auto total = static_cast<double>(gpu_memory(device).total_bytes);
  const double fraction = std::min(1.0, static_cast<double>(bytes) / std::max(total, 1.0));
  require_cuda_library().set_memory_fraction(gpu_of(device).value(), fraction);
}

std::unique_ptr<Backend> make_nccl_backend(const World& world, Rendezvous& rendezvous, const std::string& name,
                                           const std::string& device, Clock::duration patience) {
  const CudaApi& api = require_cuda_library();
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, rendezvous.impl().store);
  const auto milliseconds = std::chrono::duration_cast<Milliseconds>(patience).count();
  std::unique_ptr<DeviceGroup> group(api.make_nccl_group({.store = store.get(),
                                                          .rank = world.rank,
                                                          .size = world.size,
                                                          .device = gpu_of(device).value(),
                                                          .patience_ms = milliseconds}));
  return make_device_backend(std::move(group), {.device = device, .size = world.size, .patience = patience});
}

}  // namespace lockstep
