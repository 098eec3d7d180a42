#include "lockstep/guard/process.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// The letter after the name, which may hold anything: R, S, D, T, t, Z.
char state_letter(const std::string& stat) {
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && name_end + 2 < stat.size() ? stat[name_end + 2] : '?';
}

/// Lines like "VmRSS: 12345 kB".
void read_memory_of(pid_t pid, ProcessLook& look) {
  std::ifstream in(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(in, line);) {
    constexpr int64_t kKilo = 1024;
    if (line.starts_with("VmHWM:")) look.peak_resident_bytes = kKilo * std::atoll(line.c_str() + 6);
    if (line.starts_with("VmRSS:")) {
      look.resident_bytes = kKilo * std::atoll(line.c_str() + 6);
      return;  // the peak stands before it
    }
  }
}

}  // namespace

ProcessLook look_at_process(pid_t pid, pid_t thread) {
  if (pid <= 0 || (::kill(pid, 0) != 0 && errno == ESRCH)) return {.state = ProcessState::kGone};
  const std::string place = fmt::format("/proc/{}/task/{}", pid, thread > 0 ? thread : pid);
  ProcessLook look;
  switch (state_letter(first_line(place + "/stat"))) {
    case 'T':
      look.state = ProcessState::kStopped;
      break;
    case 't':
      look.state = ProcessState::kTraced;
      break;
    case 'Z':
    case 'X':
      look.state = ProcessState::kGone;
      break;
    case 'D':
      look.in_kernel = true;
      look.waits_in = first_line(place + "/wchan");
      if (look.waits_in == "0") look.waits_in.clear();
      break;
    default:
      break;
  }
  read_memory_of(pid, look);
  return look;
}

std::optional<int> status_of_ended(pid_t pid) {
  const std::string stat = first_line(fmt::format("/proc/{}/stat", pid));
  if (state_letter(stat) != 'Z') return std::nullopt;
  const int status = std::atoi(stat.c_str() + stat.rfind(' '));  // the last field; 0 also where it may not be read
  return status == 0 ? std::nullopt : std::make_optional(status);
}

int open_process(pid_t pid) { return pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1; }

std::optional<int> status_of_reaped(int process) {
  struct Info {                        // pidfd_info of linux/pidfd.h, as far as its first version goes
    uint64_t mask = uint64_t{1} << 3;  // PIDFD_INFO_EXIT
    uint64_t cgroup = 0;
    std::array<uint32_t, 11> numbers{};
    int32_t exit_code = 0;
  } info;
  static_assert(sizeof info == 64);
  if (process < 0 || ::ioctl(process, _IOWR(0xFF, 11, Info), &info) != 0) return std::nullopt;
  return (info.mask & uint64_t{1} << 3) != 0 ? std::make_optional(info.exit_code) : std::nullopt;
}

long out_of_memory_kills() {
  const auto kills_in = [](const std::string& file) {
    std::ifstream in(file);
    std::string word;
    for (long value = 0; in >> word >> value;) {
      if (word == "oom_kill") return value;
    }
    return -1L;
  };
  // "0::/job/7", or "4:memory:/job/7" where the machine has groups of the first version.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string kind = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    long kills = -1;
    if (kind.empty()) kills = kills_in("/sys/fs/cgroup" + path + "/memory.events");
    if (kind == "memory") kills = kills_in("/sys/fs/cgroup/memory" + path + "/memory.oom_control");
    if (kills >= 0) return kills;
  }
  const long modern = kills_in("/sys/fs/cgroup/memory.events");  // a container sees its own group at the root
  return modern >= 0 ? modern : kills_in("/sys/fs/cgroup/memory/memory.oom_control");
}

}  // namespace lockstep
