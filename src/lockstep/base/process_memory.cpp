#include "lockstep/base/process_memory.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <iterator>
#include <string>

namespace lockstep {
namespace {

std::atomic<int64_t> file_bytes_of_original{0};

int64_t kib_field(std::string_view status, std::string_view name) {
  for (size_t begin = 0; begin < status.size();) {
    const size_t end = std::min(status.find('\n', begin), status.size());
    std::string_view line = status.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name)) continue;
    line.remove_prefix(std::min(line.find_first_of("0123456789"), line.size()));
    int64_t value = 0;
    std::from_chars(line.data(), line.data() + line.size(), value);
    return value * 1024;
  }
  return 0;
}

}  // namespace

ProcessMemory parse_memory(std::string_view status) {
  return {.resident_bytes = kib_field(status, "VmRSS:"),
          .anonymous_bytes = kib_field(status, "RssAnon:"),
          .file_bytes = kib_field(status, "RssFile:"),
          .shared_bytes = kib_field(status, "RssShmem:"),
          .peak_bytes = kib_field(status, "VmHWM:")};
}

ProcessMemory read_memory() {
  std::ifstream in("/proc/self/status");
  return parse_memory(std::string(std::istreambuf_iterator<char>(in), {}));
}

int64_t settled_bytes() {
  const ProcessMemory now = read_memory();
  return now.resident_bytes + std::max<int64_t>(0, file_bytes_of_original - now.file_bytes);
}

void settles_like(const ProcessMemory& original) { file_bytes_of_original = original.file_bytes; }

bool reset_peak() {
  std::ofstream out("/proc/self/clear_refs");
  out << "5" << std::flush;  // 5: reset the peak resident set size (proc(5))
  return static_cast<bool>(out);
}

}  // namespace lockstep
