#include "lockstep/guard/board.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Board* mapped(int fd) {
  void* base = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : static_cast<Board*>(base);
}

struct PhaseWords {
  std::string_view name, text;
};
constexpr std::array<PhaseWords, kPhases> kPhaseWords{{{"start", "starting"},
                                                       {"load", "loading the model"},
                                                       {"data", "waiting for data"},
                                                       {"forward", "in the forward pass"},
                                                       {"backward", "in the backward pass"},
                                                       {"step", "in the optimizer step"},
                                                       {"save", "saving a checkpoint"},
                                                       {"evaluate", "evaluating"},
                                                       {"generate", "generating"},
                                                       {"run", "running"},
                                                       {"end", "ending"}}};

const PhaseWords& words_of(Phase phase) {
  static constexpr PhaseWords kUnknown{"unknown", "in an unknown phase"};
  const auto index = static_cast<size_t>(phase);
  return index < kPhases ? kPhaseWords[index] : kUnknown;
}

}  // namespace

std::string_view phase_name(Phase phase) { return words_of(phase).name; }
std::string_view phase_text(Phase phase) { return words_of(phase).text; }

std::span<const Group> Board::used_groups() const {
  const size_t used = num_groups.load(std::memory_order_acquire);
  return std::span(groups).first(std::min(used, kGroups));
}

std::shared_ptr<BoardMemory> BoardMemory::create() {
  const int fd = ::memfd_create("lockstep-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ::ftruncate(fd, sizeof(Board)) != 0 || ::fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    const int error = errno;
    const std::string why = std::strerror(error);
    if (fd >= 0) ::close(fd);
    if (error == EFBIG) {
      throw usage_error(fmt::format("{} bytes of memory for the roll call: {}", sizeof(Board), why),
                        "a limit on the size of files holds for it too: ulimit -f unlimited");
    }
    throw Error(ExitCode::kInternal,
                fmt::format("{} bytes of shared memory for the roll call: {}", sizeof(Board), why));
  }
  Board* board = mapped(fd);
  if (board == nullptr) {
    ::close(fd);
    throw Error(ExitCode::kInternal, fmt::format("mapping {} bytes for the roll call failed", sizeof(Board)));
  }
  // The memory is zero, which is what nearly every member starts with: writing them all would touch every page.
  board->magic = Board::kMagic;
  board->version = Board::kVersion;
  return std::shared_ptr<BoardMemory>(new BoardMemory(board, fd));
}

std::shared_ptr<BoardMemory> BoardMemory::map(int fd) {
  struct stat info {};
  // The seals first: a size that is not sealed yet may still change.
  const int seals = ::fcntl(fd, F_GET_SEALS);
  const bool whole = seals >= 0 && (seals & kSeals) == kSeals && ::fstat(fd, &info) == 0 &&
                     info.st_size == static_cast<off_t>(sizeof(Board));
  Board* board = whole ? mapped(fd) : nullptr;
  if (board == nullptr || board->magic != Board::kMagic || board->version != Board::kVersion) {
    if (board != nullptr) ::munmap(board, sizeof(Board));
    if (fd >= 0) ::close(fd);
    return nullptr;
  }
  return std::shared_ptr<BoardMemory>(new BoardMemory(board, fd));
}

BoardMemory::~BoardMemory() {
  ::munmap(board_, sizeof(Board));
  ::close(fd_);
}

void wait_for_change(const std::atomic<uint32_t>& word, uint32_t seen, Clock::duration patience) {
  const auto ns = std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(patience).count());
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void wake_all(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep
