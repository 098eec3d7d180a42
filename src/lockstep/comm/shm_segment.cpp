#include "lockstep/comm/shm_segment.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/comm/backend.h"

namespace lockstep {
namespace {

constexpr int64_t kControlBytes = 4096;
constexpr int kSpins = 300;                             // some 10 microseconds
constexpr auto kSlice = std::chrono::milliseconds(50);  // between looks at deadline, abort and death

int64_t segment_bytes(int64_t slots, int64_t slot_bytes) { return kControlBytes + slots * slot_bytes; }

void* map(int fd, int64_t bytes) {
  void* base = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return base == MAP_FAILED ? nullptr : base;
}

void unmap(void* base, int64_t bytes) { ::munmap(base, static_cast<size_t>(bytes)); }

#if defined(__SANITIZE_THREAD__)
/// The sanitizer tells memory by its address, so ranks that are threads of one process share one mapping of a segment:
/// otherwise it would compare none of what they read and write there.
struct SharedMaps {
  struct Shared {
    void* base = nullptr;
    int users = 0;
  };
  std::mutex mutex;
  std::map<ino_t, Shared> maps;  // guarded by mutex

  static SharedMaps& all() {
    static SharedMaps maps;
    return maps;
  }
};

void* map_once(int fd, int64_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return nullptr;
  const std::lock_guard lock(SharedMaps::all().mutex);
  auto& shared = SharedMaps::all().maps[info.st_ino];
  if (shared.users == 0) shared.base = map(fd, bytes);
  if (shared.base != nullptr) ++shared.users;
  return shared.base;
}

void unmap_last(void* base, int64_t bytes) {
  const std::lock_guard lock(SharedMaps::all().mutex);
  auto& maps = SharedMaps::all().maps;
  const auto found =
      std::find_if(maps.begin(), maps.end(), [&](const auto& entry) { return entry.second.base == base; });
  if (--found->second.users > 0) return;
  unmap(base, bytes);
  maps.erase(found);
}
#else
constexpr auto map_once = map;
constexpr auto unmap_last = unmap;
#endif

void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, Clock::duration patience) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(patience).count();
  const timespec timeout{ns / 1'000'000'000, ns % 1'000'000'000};
  ::syscall(SYS_futex, reinterpret_cast<const uint32_t*>(&word), FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

/// Gone, or a zombie that only waits to be collected.
bool is_dead(int32_t pid) {
  if (::kill(pid, 0) != 0) return errno == ESRCH;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(stat, text);
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() && text[name_end + 2] == 'Z';
}

}  // namespace

ShmSegment::ShmSegment(std::string name, void* base, int64_t slots, int64_t slot_bytes)
    : name_(std::move(name)), base_(base), slots_(slots), slot_bytes_(slot_bytes) {}

std::unique_ptr<ShmSegment> ShmSegment::create(const std::string& name, int64_t slots, int64_t slot_bytes) {
  const int64_t bytes = segment_bytes(slots, slot_bytes);
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  void* base = ::posix_fallocate(fd, 0, bytes) == 0 ? map_once(fd, bytes) : nullptr;
  ::close(fd);
  if (base == nullptr) {
    ::shm_unlink(name.c_str());
    return nullptr;
  }
  new (base) ShmControl{};
  std::unique_ptr<ShmSegment> segment(new ShmSegment(name, base, slots, slot_bytes));
  segment->control().pid = ::getpid();
  segment->owner_ = true;
  return segment;
}

std::unique_ptr<ShmSegment> ShmSegment::open(const std::string& name, int64_t slots, int64_t slot_bytes) {
  const int64_t bytes = segment_bytes(slots, slot_bytes);
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  struct stat info {};
  void* base = ::fstat(fd, &info) == 0 && info.st_size == bytes ? map_once(fd, bytes) : nullptr;
  ::close(fd);
  return base == nullptr ? nullptr : std::unique_ptr<ShmSegment>(new ShmSegment(name, base, slots, slot_bytes));
}

ShmSegment::~ShmSegment() {
  if (owner_) unlink();
  unmap_last(base_, segment_bytes(slots_, slot_bytes_));
}

char* ShmSegment::slot(uint64_t index) const {
  return static_cast<char*>(base_) + kControlBytes +
         static_cast<int64_t>(index % static_cast<uint64_t>(slots_)) * slot_bytes_;
}

void ShmSegment::unlink() {
  if (!name_.empty()) ::shm_unlink(name_.c_str());
  name_.clear();
}

void ShmSegment::signal() const {
  ShmControl& me = control();
  me.signal.fetch_add(1, std::memory_order_seq_cst);
  if (me.waiters.load(std::memory_order_seq_cst) == 0) return;
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&me.signal), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ShmSegment::wait_for(const std::atomic<uint64_t>& counter, uint64_t wanted, const Deadline& deadline,
                          const std::atomic<bool>& aborted, int who) const {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (counter.load(std::memory_order_acquire) >= wanted) return;
    __builtin_ia32_pause();
  }
  ShmControl& peer = control();
  for (auto looked = Clock::now();;) {
    const uint32_t seen = peer.signal.load(std::memory_order_seq_cst);
    if (counter.load(std::memory_order_acquire) >= wanted) return;
    if (aborted.load()) throw std::runtime_error("aborted on this rank");
    // What a rank sent before it left still counts, so the counter is read again after its end was seen.
    const auto arrived = [&] { return counter.load(std::memory_order_acquire) >= wanted; };
    if (peer.left.load() != 0) {
      if (arrived()) return;
      throw std::runtime_error(fmt::format("rank {} has left", who));
    }
    if (deadline.passed()) throw CommTimeout{fmt::format("rank {} has not come", who)};
    if (Clock::now() - looked >= kSlice) {
      looked = Clock::now();
      if (is_dead(peer.pid)) {
        if (arrived()) return;
        throw std::runtime_error(fmt::format("rank {} (process {}) has died", who, peer.pid));
      }
    }
    peer.waiters.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(peer.signal, seen, std::min<Clock::duration>(kSlice, deadline.left()));
    peer.waiters.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace lockstep
