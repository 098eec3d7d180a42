#include "lockstep/doctor/machine_facts.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/machine.h"
#include "lockstep/comm/backend_shm.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

/// Bytes that this user may still write there; -1 when nothing can be asked there.
int64_t free_bytes_of(const fs::path& place) {
  struct statvfs info {};
  if (::statvfs(place.c_str(), &info) != 0) return -1;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

/// What the kernel shows as files: root may write in its folders, as far as access() tells, and makes none there.
bool is_of_the_kernel(const fs::path& place) {
  struct statfs info {};
  if (::statfs(place.c_str(), &info) != 0) return false;
  return info.f_type == PROC_SUPER_MAGIC || info.f_type == SYSFS_MAGIC;
}

}  // namespace

SharedMemoryFacts shared_memory_facts(const World& world, const std::string& transport) {
  const int ranks = world.local_size;
  const ShmNeed data = shm_need(ranks, kDataSlotBytes), control = shm_need(ranks, kControlSlotBytes);
  return {.ranks = ranks,
          .free_bytes = free_bytes_of("/dev/shm"),
          .wanted_bytes = data.wanted + control.wanted,
          .least_bytes = data.least + control.least,
          .required = transport == "shm",
          .unused = world.size == 1                              ? "one rank"
                    : world.num_nodes > 1 && transport == "auto" ? "the ranks stand on several machines"
                    : transport == "gloo"                        ? "--transport gloo"
                                                                 : ""};
}

DiskFacts disk_facts(const std::string& dir, std::optional<int64_t> checkpoint_bytes) {
  DiskFacts facts{.dir = dir, .checkpoint_bytes = checkpoint_bytes};
  std::error_code unknown;
  fs::path there = fs::absolute(dir, unknown).lexically_normal();
  while (!fs::exists(there, unknown) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, unknown)) {
    facts.error = there.string() + " is no folder";
  } else if (::access(there.c_str(), W_OK | X_OK) != 0 || is_of_the_kernel(there)) {
    facts.error = fmt::format("this user may not write in {}", there.string());
  }
  facts.free_bytes = std::max<int64_t>(0, free_bytes_of(there));
  return facts;
}

OpenFilesFacts open_files_facts(int64_t needed) {
  rlimit limit{};
  const auto number = [](rlim_t value) { return value == RLIM_INFINITY ? -1 : static_cast<int64_t>(value); };
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {.soft = -1, .hard = -1, .needed = needed};
  return {.soft = number(limit.rlim_cur), .hard = number(limit.rlim_max), .needed = needed};
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

ClockFacts clock_facts() {
  const auto begun = Clock::now();
  const double wall = wall_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const double measured = seconds_since(begun);
  return {.wall_seconds = wall, .measured = measured, .drift = wall_seconds() - wall - measured};
}

MemoryFacts memory_facts(int local_ranks, std::optional<int64_t> state_bytes) {
  const MachineMemory memory = machine_memory();
  return {.total_bytes = memory.total_bytes,
          .available_bytes = memory.available_bytes,
          .limited = memory.limited,
          .ranks = local_ranks,
          .state_bytes = state_bytes};
}

CoreFacts core_facts(int local_ranks, const Env& env) {
  const int cores = usable_cores();
  const auto given = asked_threads(env);
  return {.cores = cores,
          .quota = cpu_quota(),
          .ranks = local_ranks,
          .threads = given.value_or(cores),
          .threads_given = given.has_value()};
}

std::string huge_pages_setting() {
  std::ifstream in("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string text;
  std::getline(in, text);
  return text;
}

double copy_bandwidth() {
  constexpr size_t kBytes = size_t{64} << 20;  // more than caches hold
  const auto from = std::make_unique<char[]>(kBytes), to = std::make_unique<char[]>(kBytes);
  double best = 0;
  for (int i = 0; i < 4; ++i) {  // the first fills the pages of `to`
    const auto begun = Clock::now();
    std::memcpy(to.get(), from.get(), kBytes);
    asm volatile("" : : "r"(to.get()) : "memory");  // or the compiler leaves out a copy that nobody reads
    best = std::max(best, static_cast<double>(kBytes) / std::max(1e-9, seconds_since(begun)));
  }
  return best;
}

}  // namespace lockstep
