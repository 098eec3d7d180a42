// Resident memory of this process, now and at its peak, as the kernel counts it.
//
// Example:
//   reset_peak();
//   train_step();
//   step.peak_bytes = {read_memory().peak_bytes};
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

struct ProcessMemory {
  int64_t resident_bytes = 0;   // VmRSS
  int64_t anonymous_bytes = 0;  // RssAnon: of it what is no file's, so that it comes back only when it is freed
  int64_t file_bytes = 0;       // RssFile: libraries and mapped files, whose pages the kernel may take back
  int64_t shared_bytes = 0;     // RssShmem: memory that several processes have, each of which counts all of it
  int64_t peak_bytes = 0;       // VmHWM: since the process began, or since reset_peak()
};

/// Reads /proc/self/status; zeros where the kernel does not tell.
ProcessMemory read_memory();

/// What this process holds, or will as soon as it has run for a moment: a copy of another one, by fork(), begins with none of the pages
/// of libraries that its original has read.
int64_t settled_bytes();
/// This process is a copy of one that held so much.
void settles_like(const ProcessMemory& original);

/// The same as read_memory(), from the text of a status file (values there are in KiB).
ProcessMemory parse_memory(std::string_view status);

/// Makes the peak start over at the present size. False where the kernel refuses (some containers).
bool reset_peak();

}  // namespace lockstep
