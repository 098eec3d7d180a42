// What a rank was started with, as its board's facts tell it, and repairs in words that name flags and values: a person
// can copy them, and so can a program (tests/faults/fixes.py).
//
// Example:
//   const Settings mine = settings_of(report);   // {.command = "sft", .given = {{"--torch_dtype", "float32"}, …}}
//   out.fix = go_on(mine);                       // "the same command with --resume_from_checkpoint auto goes on …"
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/guard/rank_set.h"
#include "lockstep/guard/report.h"

namespace lockstep {

struct Settings {
  std::string command;                       // "sft"; empty where a program uses the library
  std::map<std::string, std::string> given;  // "--model" -> path, "WORLD_SIZE" -> "3", as a shell takes them
};

/// Empty where the rank has told nothing.
Settings settings_of(const RankReport& report);

/// As a shell takes it: quoted where it must be.
std::string shell_word(std::string_view text);

/// "--flag value", "--flag" or "NAME=value".
std::string as_given(const std::string& name, const std::string& value);

/// The setting of a process that lockstep has not started itself, only watches.
inline constexpr const char* kWatchedFlag = "LOCKSTEP_GUARD";

/// The launcher's flags that make WORLD_SIZE: "--nproc, --nnodes".
std::string_view world_size_flags(const Settings& job);

/// How a wait of `seconds` is allowed in a phase: "--patience data=120".
std::string allow_longer(const Settings& job, std::string_view phase, double seconds);

/// What says how many prepare the rows.
std::string data_workers(const Settings& job);

/// How a job that has ended goes on from where it was.
std::string go_on(const Settings& job);

/// Flags that make this job need less memory, the cheapest first; what helps anybody where nothing is known of it.
std::string need_less_memory(const Settings& job);

/// How `who` is started as the others are: the settings that `wants` names and that differ. Empty when none does.
std::string start_alike(const RankSet& who, const Settings& odd, const RankSet& others, const Settings& usual,
                        bool (*wants)(std::string_view name));

}  // namespace lockstep
