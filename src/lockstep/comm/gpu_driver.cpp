// Source: CUDA Driver API, "Initialization" and "Device Management": the names and numbers below.
#include "lockstep/comm/gpu_driver.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <system_error>

#include <dlfcn.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int kSuccess = 0, kNoDevice = 100;

struct Uuid {
  std::array<uint8_t, 16> bytes{};
};

/// The few functions that are asked; null where the library lacks one.
struct Functions {
  int (*init)(unsigned flags) = nullptr;
  int (*count)(int* count) = nullptr;
  int (*uuid)(Uuid* uuid, int device) = nullptr;
  int (*error_name)(int error, const char** name) = nullptr;
  int (*error_text)(int error, const char** text) = nullptr;

  explicit Functions(void* library) {
    load(library, "cuInit", init);
    load(library, "cuDeviceGetCount", count);
    load(library, "cuDeviceGetUuid_v2", uuid);  // of a MIG slice where there is one
    if (uuid == nullptr) load(library, "cuDeviceGetUuid", uuid);
    load(library, "cuGetErrorName", error_name);
    load(library, "cuGetErrorString", error_text);
  }

  std::string describe(const char* call, int error) const {
    const char *name = nullptr, *text = nullptr;
    if (error_name != nullptr) error_name(error, &name);
    if (error_text != nullptr) error_text(error, &text);
    return fmt::format("{}: {} ({})", call, name == nullptr ? fmt::format("error {}", error) : name,
                       text == nullptr ? "no words for it" : text);
  }

 private:
  template <typename Function>
  static void load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
  }
};

/// As nvidia-smi writes it.
std::string text_of(const Uuid& uuid) {
  std::string out = "GPU-";
  for (size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", uuid.bytes.at(i));
  }
  return out;
}

/// An image may hold the driver's library on a host that has no GPU, where it starts with one error or another.
bool has_device_files() {
  std::error_code unknown;
  return std::filesystem::exists("/dev/nvidiactl", unknown) || std::filesystem::exists("/dev/dxg", unknown);
}

std::atomic<const GpuDriver*>& instead_of_driver() {
  static std::atomic<const GpuDriver*> driver{nullptr};
  return driver;
}

}  // namespace

GpuDriver GpuDriver::ask(const std::string& library) {
  GpuDriver seen;
  void* const opened =
      ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: a driver starts once a process
  if (opened == nullptr) return seen;
  seen.there = true;
  const Functions cuda(opened);
  if (cuda.init == nullptr || cuda.count == nullptr || cuda.uuid == nullptr) {
    seen.failure = fmt::format("{} lacks cuInit, cuDeviceGetCount or cuDeviceGetUuid", library);
    return seen;
  }
  int error = cuda.init(0);
  if (error == kNoDevice) return seen;
  if (error != kSuccess) {
    seen.failure = cuda.describe("cuInit", error);
    return seen;
  }
  int count = 0;
  error = cuda.count(&count);
  if (error != kSuccess) {
    seen.failure = cuda.describe("cuDeviceGetCount", error);
    return seen;
  }
  for (int device = 0; device < count; ++device) {
    Uuid uuid;
    error = cuda.uuid(&uuid, device);  // of the ordinal: a CUdevice is that
    seen.uuids.push_back(error == kSuccess ? text_of(uuid) : fmt::format("GPU {}", device));
  }
  return seen;
}

const GpuDriver& GpuDriver::of_process() {
  if (const GpuDriver* const driver = instead_of_driver()) return *driver;
  static const GpuDriver seen = [] {
    GpuDriver found = ask();
    if (!has_device_files()) found.failure.clear();
    return found;
  }();
  return seen;
}

void GpuDriver::use_in_process(const GpuDriver* instead) { instead_of_driver() = instead; }

}  // namespace lockstep
