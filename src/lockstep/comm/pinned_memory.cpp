#include "lockstep/comm/pinned_memory.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <sys/mman.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/cuda_library.h"

namespace lockstep {

PinnedMemory::PinnedMemory(int64_t bytes) : size_(static_cast<size_t>(bytes)) {
  void* const there = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (there == MAP_FAILED) {
    throw UserError(
        ExitCode::kMemory,
        fmt::format("host memory for weights: mmap of {} failed: {}", format_bytes(bytes), std::strerror(errno)),
        "`lockstep plan` with the same flags shows what is needed and the cheapest changes that make it fit");
  }
  bytes_ = static_cast<std::byte*>(there);
  std::string why;
  const CudaApi* const cuda = open_cuda_library(why);
  pinned_ = cuda != nullptr && cuda->pin(bytes_, size_);
}

PinnedMemory::~PinnedMemory() {
  std::string why;
  const CudaApi* const cuda = pinned_ ? open_cuda_library(why) : nullptr;
  if (cuda != nullptr) cuda->unpin(bytes_);
  ::munmap(bytes_, size_);
}

}  // namespace lockstep
