#include "lockstep/base/machine.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string text_of(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// -1 when the file is not there or says "max".
int64_t number_in(const char* path) {
  std::ifstream in(path);
  int64_t value = -1;
  return in >> value ? value : -1;
}

int64_t bytes_of(std::string_view meminfo, std::string_view name) {
  std::istringstream in{std::string(meminfo)};
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ':') continue;
    std::istringstream rest(line.substr(name.size() + 1));
    int64_t kib = 0;
    return rest >> kib ? kib * 1024 : 0;
  }
  return 0;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// The names are LibTorch's own; one that it does not know, it ignores.
bool limited_below_bfloat16(const Env& env) {
  constexpr std::array kBelow{"sse41", "avx", "avx2", "avx2_vnni", "avx2_vnni_2", "avx512_core", "avx512_core_vnni"};
  const auto one_dnn = env.has("ONEDNN_MAX_CPU_ISA") ? env.text("ONEDNN_MAX_CPU_ISA") : env.text("DNNL_MAX_CPU_ISA");
  if (one_dnn && std::ranges::find(kBelow, lower(*one_dnn)) != kBelow.end()) return true;
  const auto torch = env.text("ATEN_CPU_CAPABILITY");
  return torch && (*torch == "avx2" || *torch == "default");
}

/// Pages of files, which the kernel takes back before the group is out of memory. Either version's memory.stat.
int64_t reclaimable_bytes(const std::string& stat) {
  std::istringstream in(stat);
  int64_t bytes = 0, value = 0;
  for (std::string name; in >> name >> value;) {
    if (name == "inactive_file" || name == "active_file") bytes += value;
  }
  return bytes;
}

}  // namespace

MachineMemory machine_memory_from(std::string_view meminfo, int64_t group_limit, int64_t group_used) {
  MachineMemory memory{.total_bytes = bytes_of(meminfo, "MemTotal"),
                       .available_bytes = bytes_of(meminfo, "MemAvailable")};
  if (group_limit <= 0 || group_limit >= memory.total_bytes) return memory;  // old kernels write a huge number for none
  memory.total_bytes = group_limit;
  memory.limited = true;
  if (group_used >= 0) {
    memory.available_bytes = std::min(memory.available_bytes, std::max<int64_t>(0, group_limit - group_used));
  }
  return memory;
}

MachineMemory machine_memory() {
  int64_t limit = number_in("/sys/fs/cgroup/memory.max"), used = number_in("/sys/fs/cgroup/memory.current");
  std::string stat = text_of("/sys/fs/cgroup/memory.stat");
  if (limit < 0) {  // control groups of version 1
    limit = number_in("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    used = number_in("/sys/fs/cgroup/memory/memory.usage_in_bytes");
    stat = text_of("/sys/fs/cgroup/memory/memory.stat");
  }
  if (used >= 0) used = std::max<int64_t>(0, used - reclaimable_bytes(stat));
  return machine_memory_from(text_of("/proc/meminfo"), limit, used);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != 0 ? name.data() : "localhost";
}

std::optional<int> asked_threads(const Env& env) {
  constexpr const char* kName = "OMP_NUM_THREADS";
  constexpr int kMost = 1 << 16;
  const auto text = env.text(kName);
  if (!text) return std::nullopt;
  int threads = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), threads);
  const bool whole = error == std::errc() && (end == text->data() + text->size() || *end == ',');
  if (whole && threads >= 1 && threads <= kMost) return threads;
  throw usage_error(fmt::format("{}={}: expected a number of threads from 1 to {}", kName, *text, kMost),
                    "leave it out for the cores that there are");
}

int usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return ::sched_getaffinity(0, sizeof cores, &cores) == 0 ? std::max(1, CPU_COUNT(&cores)) : 1;
}

double parse_cpu_quota(std::string_view text) {
  std::istringstream in{std::string(text)};
  double quota = 0, period = 0;
  return in >> quota >> period && quota > 0 && period > 0 ? quota / period : 0;
}

double cpu_quota() {
  const std::string modern = text_of("/sys/fs/cgroup/cpu.max");
  if (!modern.empty()) return parse_cpu_quota(modern);
  return parse_cpu_quota(text_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " +
                         text_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

bool multiplies_bfloat16(std::string_view cpuinfo, const Env& env) {
  if (limited_below_bfloat16(env)) return false;
  std::istringstream in{std::string(cpuinfo)};
  for (std::string word; in >> word;) {
    if (word == "avx512_bf16" || word == "amx_bf16") return true;
  }
  return false;
}

bool multiplies_bfloat16(const Env& env) { return multiplies_bfloat16(text_of("/proc/cpuinfo"), env); }

bool is_intel(std::string_view cpuinfo) { return cpuinfo.find("GenuineIntel") != std::string_view::npos; }

bool is_intel() { return is_intel(text_of("/proc/cpuinfo")); }

}  // namespace lockstep
