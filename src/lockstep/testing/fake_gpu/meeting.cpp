#include "lockstep/testing/fake_gpu/meeting.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::fake_gpu {
namespace {

constexpr size_t kMostRanks = 16, kSlotBytes = size_t{64} << 20, kBoardBytes = 4096;
constexpr int64_t kSlots = 2;  // of a rank: one is filled while others may still read the one before
constexpr auto kLook = std::chrono::microseconds(50);

size_t bytes_of_device(int ranks) { return kBoardBytes + static_cast<size_t>(ranks * kSlots) * kSlotBytes; }
size_t bytes_of_all(int ranks) { return static_cast<size_t>(Meetings::kMostDevices) * bytes_of_device(ranks); }

/// Pages that nobody has written take no memory.
char* mapped(int file, size_t bytes) {
  void* const there = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  check(there != MAP_FAILED, fmt::format("fake group: mmap: {}", std::strerror(errno)));
  return static_cast<char*>(there);
}

int opened(int file, const char* what) {
  check(file >= 0, fmt::format("fake group: {}: {}", what, std::strerror(errno)));
  return file;
}

}  // namespace

/// How many rounds each rank has given its bytes for, and read. Zero at first, as new pages are.
struct Meetings::Board {
  std::array<std::atomic<int64_t>, kMostRanks> given, read;
};

Meetings::Meetings(c10d::Store& store, int rank, int size) : rank_(rank), size_(size) {
  check(size <= static_cast<int>(kMostRanks), "fake group: 16 ranks at most");
  static_assert(sizeof(Board) <= kBoardBytes);
  int file = -1;
  if (rank == 0) {
    file = opened(::memfd_create("fake group", 0), "memfd_create");
    check(::ftruncate(file, static_cast<off_t>(bytes_of_all(size))) == 0, "fake group: ftruncate");
    const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), file);
    store.set("meeting", std::vector<uint8_t>(path.begin(), path.end()));
    for (int r = 1; r < size; ++r) store.wait({fmt::format("met/{}", r)});  // the file goes with this process
  } else {
    const auto path = store.get("meeting");
    file = opened(::open(std::string(path.begin(), path.end()).c_str(), O_RDWR), "open");
    store.set(fmt::format("met/{}", rank), std::vector<uint8_t>{1});
  }
  shared_ = mapped(file, bytes_of_all(size));
  ::close(file);
}

Meetings::~Meetings() { ::munmap(shared_, bytes_of_all(size_)); }

Meetings::Board& Meetings::board(int device_of_rank) const {
  return *reinterpret_cast<Board*>(shared_ + static_cast<size_t>(device_of_rank) * bytes_of_device(size_));
}

char* Meetings::slot(int device_of_rank, int rank, int64_t round) const {
  const auto index = static_cast<size_t>(rank * kSlots + round % kSlots);
  return reinterpret_cast<char*>(&board(device_of_rank)) + kBoardBytes + index * kSlotBytes;
}

template <typename Condition>
void Meetings::wait_until(const Condition& condition) const {
  while (!condition()) {
    if (aborted_) throw std::runtime_error("the fake group was aborted");
    std::this_thread::sleep_for(kLook);
  }
}

void Meetings::meet(int device_of_rank, const void* mine, size_t bytes, const Read& read) {
  if (aborted_) throw std::runtime_error("the fake group was aborted");
  check(bytes <= kSlotBytes, "fake group: 64 MiB of a rank at most");
  Board& here = board(device_of_rank);
  const int64_t round = rounds_.at(static_cast<size_t>(device_of_rank))++;
  const auto all_at = [&](const auto& counts, int64_t least) {
    const std::span first(counts.data(), static_cast<size_t>(size_));
    return std::ranges::all_of(first, [&](const std::atomic<int64_t>& count) { return count >= least; });
  };
  wait_until([&] { return all_at(here.read, round - 1); });  // the slot's last round
  std::memcpy(slot(device_of_rank, rank_, round), mine, bytes);
  here.given.at(static_cast<size_t>(rank_)) = round + 1;
  wait_until([&] { return all_at(here.given, round + 1); });
  std::vector<const void*> slots;
  for (int r = 0; r < size_; ++r) slots.push_back(slot(device_of_rank, r, round));
  read(slots);
  here.read.at(static_cast<size_t>(rank_)) = round + 1;
}

}  // namespace lockstep::fake_gpu
