#include "lockstep/cuda/kernel_launcher.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace lockstep {
namespace {

constexpr const char* kPrelude = R"prelude(
#define LOCKSTEP_KERNEL extern "C" __global__ void
#define LOCKSTEP_KERNEL_OF(threads) extern "C" __global__ void __launch_bounds__(threads)
#define LOCKSTEP_DEVICE __device__ inline
#define LOCKSTEP_SHARED __shared__
#define LOCKSTEP_UNROLL _Pragma("unroll")
LOCKSTEP_DEVICE long long block_x() { return blockIdx.x; }
LOCKSTEP_DEVICE long long block_y() { return blockIdx.y; }
LOCKSTEP_DEVICE int thread() { return threadIdx.x; }
LOCKSTEP_DEVICE int threads() { return blockDim.x; }
LOCKSTEP_DEVICE void all_here() { __syncthreads(); }
LOCKSTEP_DEVICE unsigned bits_of(float x) { return __float_as_uint(x); }
LOCKSTEP_DEVICE float float_of(unsigned bits) { return __uint_as_float(bits); }
LOCKSTEP_DEVICE unsigned short half_of(float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
LOCKSTEP_DEVICE float float_of_half(unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
template <typename T>
LOCKSTEP_DEVICE T* memory_at(long long address) { return reinterpret_cast<T*>(address); }
#line 1 "gpu_kernels.cuh"
)prelude";

[[noreturn]] void refuse(const std::string& what) { throw std::runtime_error("kernels of the GPU: " + what); }

/// In LibTorch's words, by which a fault of the GPU is known (base/failure), and no later call is blamed for it.
void require(cudaError_t code, const std::string& what) {
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  refuse(what + ": CUDA error: " + cudaGetErrorString(code));
}

/// NVIDIA's run-time compiler, as LibTorch's wheels bring it. Its few functions have been the same since CUDA 11.1; its header is
/// in a wheel of its own, which the build does not ask for.
class Compiler {
 public:
  Compiler() {
    int version = 0;
    require(cudaRuntimeGetVersion(&version), "version of the CUDA runtime");
    const std::string name = "libnvrtc.so." + std::to_string(version / 1000);
    library_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) refuse(std::string(::dlerror()) + " (a part of torch's CUDA wheels)");
  }

  /// Machine code for GPUs of a kind, "sm_90".
  std::string compile(const std::string& text, const std::string& kind) const {
    void* program = nullptr;
    const char* const name = "lockstep.cu";
    require_done(call<int(void**, const char*, const char*, int, const char* const*, const char* const*)>(
        "nvrtcCreateProgram", &program, text.c_str(), name, 0, nullptr, nullptr));
    const std::string target = "--gpu-architecture=" + kind;
    const char* const options[] = {target.c_str(), "--std=c++17"};
    const int code = call<int(void*, int, const char* const*)>("nvrtcCompileProgram", program, 2, options);
    if (code != 0)
      refuse("they do not compile for " + kind + ":\n" + read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog"));
    std::string made = read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN");
    require_done(call<int(void**)>("nvrtcDestroyProgram", &program));
    return made;
  }

 private:
  template <typename Function, typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    auto* const function = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (function == nullptr) refuse(std::string("libnvrtc has no ") + name);
    return function(arguments...);
  }

  void require_done(int code) const {
    if (code != 0) refuse("NVRTC says " + std::to_string(code));
  }

  std::string read(void* program, const char* size_of, const char* text_of) const {
    size_t size = 0;
    require_done(call<int(void*, size_t*)>(size_of, program, &size));
    std::string text(size, '\0');
    require_done(call<int(void*, char*)>(text_of, program, text.data()));
    return text;
  }

  void* library_ = nullptr;
};

std::string text_of(const std::string& instance) {
  return std::string(kPrelude).append(kGpuKernelsText) + "\nLOCKSTEP_" + instance + "\n";
}

class Launcher final : public GpuLauncher {
 public:
  int generation(int device) override {
    const std::scoped_lock lock(mutex_);
    return generation_of(device);
  }

  void launch(int device, const std::string& kernel, const std::string& instance, const KernelGrid& grid,
              std::vector<KernelArgument> arguments) override {
    std::vector<void*> places;
    for (auto& argument : arguments) {
      places.push_back(argument.kind == KernelArgument::Kind::kPointer   ? static_cast<void*>(&argument.pointer)
                       : argument.kind == KernelArgument::Kind::kInteger ? static_cast<void*>(&argument.integer)
                                                                         : static_cast<void*>(&argument.number));
    }
    const dim3 blocks(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y), 1);
    const dim3 threads(static_cast<unsigned>(grid.threads), 1, 1);
    const c10::cuda::CUDAGuard guard(
        static_cast<c10::DeviceIndex>(device));  // a launch goes to the device that is current
    const auto stream = c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
    require(cudaLaunchKernel(kernel_of(device, kernel, instance), blocks, threads, places.data(), 0, stream), kernel);
  }

 private:
  const void* kernel_of(int device, const std::string& kernel, const std::string& instance) {
    const std::string name = kernel + "_" + instance;
    const std::scoped_lock lock(mutex_);
    const auto found = kernels_.find({device, name});
    if (found != kernels_.end()) return found->second;
    cudaKernel_t made = nullptr;
    require(cudaLibraryGetKernel(&made, library_for(device, instance), name.c_str()), name);
    return kernels_[{device, name}] = reinterpret_cast<const void*>(made);
  }

  int generation_of(int device) {
    int& known = generations_[device];
    if (known != 0) return known;
    int major = 0, minor = 0;
    require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "kind of the GPU");
    require(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "kind of the GPU");
    return known = 10 * major + minor;
  }

  /// GPUs of one kind share one.
  cudaLibrary_t library_for(int device, const std::string& instance) {
    const std::string kind = "sm_" + std::to_string(generation_of(device));
    cudaLibrary_t& library = libraries_[{kind, instance}];
    if (library != nullptr) return library;
    std::string& code = code_[{kind, instance}];
    code = compiler_.compile(text_of(instance), kind);
    require(cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0), "loading");
    return library;
  }

  const Compiler compiler_;
  std::mutex mutex_;
  std::map<int, int> generations_;
  using KindAndInstance = std::pair<std::string, std::string>;
  std::map<KindAndInstance, std::string> code_;  // stays while its library is loaded
  std::map<KindAndInstance, cudaLibrary_t> libraries_;
  std::map<std::pair<int, std::string>, const void*> kernels_;
};

}  // namespace

size_t compile_kernels_for(const std::string& kind) {
  const Compiler compiler;
  size_t bytes = 0;
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    for (const char* width : {"", "_wide"}) bytes += compiler.compile(text_of(std::string(dtype) + width), kind).size();
  }
  return bytes;
}

/// Never destroyed: the CUDA runtime ends before the process does.
GpuLauncher& kernel_launcher() {
  static auto* const launcher = new Launcher;
  return *launcher;
}

}  // namespace lockstep
