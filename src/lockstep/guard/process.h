// What the kernel says of a process that says nothing itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <sys/types.h>

namespace lockstep {

enum class ProcessState { kAlive, kStopped, kTraced, kGone };

struct ProcessLook {
  ProcessState state = ProcessState::kAlive;
  bool in_kernel = false;  // sleeping where no signal reaches it: a disk or network file system
  std::string waits_in;    // the kernel function, where the kernel tells: "nfs_wait_on_request"
  int64_t resident_bytes = 0, peak_resident_bytes = 0;
};

/// Of the process, and of its thread `thread` (0: the main one).
ProcessLook look_at_process(pid_t pid, pid_t thread = 0);

/// How a process ended that its parent has not asked for yet, as waitpid says it, whoever the parent is. nullopt: it has not
/// ended, its parent knows already, or the kernel does not tell.
std::optional<int> status_of_ended(pid_t pid);

/// Of a process by its number, while it is there. -1: the kernel has none to give.
int open_process(pid_t pid);
/// The same of one whose parent has asked: a kernel since 6.15 tells it to whoever holds a descriptor of the process.
std::optional<int> status_of_reaped(int process);

/// How many processes of this control group the kernel has killed for want of memory; -1 where it does not say.
long out_of_memory_kills();

}  // namespace lockstep
