// Last words of a rank that crashes for want of memory: some libraries do not look at what an allocation gave them.
#pragma once

#include <memory>
#include <string_view>

namespace lockstep {

class BoardMemory;

/// Part of the headline where a rank's own abort() is what the job ends for.
inline constexpr std::string_view kAborted = "crashed (SIGABRT)";

/// From now on, when this process crashes while the system gives it no more memory, the board says that it was out of memory;
/// the crash goes on as it would. Where somebody else handles crashes already, nothing is changed. Of a process's boards the
/// last one counts.
void explain_crashes_without_memory(std::shared_ptr<BoardMemory> board);

}  // namespace lockstep
