#include "lockstep/guard/process.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>

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

long out_of_memory_kills() {
  std::ifstream in("/sys/fs/cgroup/memory.events");
  std::string word;
  for (long value = 0; in >> word >> value;) {
    if (word == "oom_kill") return value;
  }
  return -1;
}

}  // namespace lockstep
