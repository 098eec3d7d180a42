// A CUDA driver that is none, for tests of what asks one: LOCKSTEP_STUB_CUDA=3 shows three GPUs, "error 802" fails in cuInit.
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string wanted() {
  const char* const value = std::getenv("LOCKSTEP_STUB_CUDA");
  return value == nullptr ? "0" : value;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  const std::string value = wanted();
  if (value.rfind("error ", 0) == 0) return std::atoi(value.c_str() + 6);
  return value == "0" ? 100 : 0;
}

int cuDeviceGetCount(int* count) {
  *count = std::atoi(wanted().c_str());
  return 0;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::memset(uuid, 0xA0 + device, 16);
  return 0;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_UNKNOWN";
  return 0;
}

int cuGetErrorString(int error, const char** text) {
  *text = error == 802 ? "system not yet initialized" : "unknown error";
  return 0;
}
}
