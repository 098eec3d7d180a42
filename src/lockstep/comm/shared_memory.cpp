#include "lockstep/comm/shared_memory.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/communicator.h"

namespace lockstep {
namespace {

using Mark = std::array<uint32_t, 4>;         // what the file begins with: by it the others know that it is the one
constexpr int64_t kBegin = int64_t{2} << 20;  // of the memory in the file: of a huge page

/// Rank 0's file: "/proc/PID/fd/N" as the others call it, and its mark.
std::string words_of(const Descriptor& file, const Mark& mark) {
  if (!file.is_open()) return "";
  return fmt::format("/proc/{}/fd/{} {:08x}{:08x}{:08x}{:08x}", ::getpid(), file.get(), mark[0], mark[1], mark[2],
                     mark[3]);
}

Descriptor make_file(Mark& mark) {
  Descriptor file(::memfd_create("lockstep-weights", MFD_CLOEXEC));
  std::random_device random;
  for (uint32_t& word : mark) word = random();
  if (file.is_open() && ::pwrite(file.get(), mark.data(), sizeof mark, 0) != sizeof mark) return {};
  return file;
}

/// The same process number may be another process's on another host: then the mark is not there.
Descriptor open_file(const std::string& words) {
  const size_t space = words.find(' ');
  if (space == std::string::npos) return {};
  Descriptor file(::open(words.substr(0, space).c_str(), O_RDWR | O_CLOEXEC));
  Mark mark{};
  if (!file.is_open() || ::pread(file.get(), mark.data(), sizeof mark, 0) != sizeof mark) return {};
  const std::string found = fmt::format("{:08x}{:08x}{:08x}{:08x}", mark[0], mark[1], mark[2], mark[3]);
  return found == words.substr(space + 1) ? std::move(file) : Descriptor();
}

}  // namespace

std::unique_ptr<SharedMemory> SharedMemory::among(Communicator& control) {
  Mark mark{};
  Descriptor file;
  if (control.rank() == 0) file = make_file(mark);
  const std::string words = from_rank_0(control, words_of(file, mark), "memory of all ranks");
  if (control.rank() != 0) file = open_file(words);
  const auto there = control.all_gather_bytes(file.is_open() ? "yes" : "no", "memory of all ranks, opened");
  if (std::ranges::find(there, "no") != there.end()) return nullptr;
  return std::unique_ptr<SharedMemory>(new SharedMemory(std::move(file)));
}

SharedMemory::~SharedMemory() {
  if (bytes_ != nullptr) ::munmap(bytes_, static_cast<size_t>(size_));
}

void SharedMemory::grow(int64_t bytes) {
  check(bytes_ == nullptr && bytes > 0, "memory of all ranks grows once");
  const auto refused = [&](const char* what) {
    return UserError(
        ExitCode::kMemory,
        fmt::format("memory of all ranks: {} of {} failed: {}", what, format_bytes(bytes), std::strerror(errno)),
        "--shared_weights false gives each rank memory of its own");
  };
  if (::ftruncate(file_.get(), kBegin + bytes) != 0) throw refused("ftruncate");
  const auto length = static_cast<size_t>(bytes);
  void* const there = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), kBegin);
  if (there == MAP_FAILED) throw refused("mmap");
  ::madvise(there, length, MADV_HUGEPAGE);  // where the kernel has them for shared memory
  bytes_ = static_cast<std::byte*>(there);
  size_ = bytes;
}

void SharedMemory::protect() {
  if (bytes_ != nullptr) ::mprotect(bytes_, static_cast<size_t>(size_), PROT_READ);
}

}  // namespace lockstep
