// A part of a test that needs a process of its own: the test program started again, with one test alone. A child that is
// only forked from a program with threads may stand still for ever at a lock that one of them held.
//
// Example:
//   TEST(Part, Sleeper) {                       // does nothing where the whole program runs
//     if (const auto seconds = part_variable("SECONDS")) ::sleep(std::stoi(*seconds)), ::_exit(0);
//   }
//   const pid_t child = start_part("Part.Sleeper", {{"SECONDS", "60"}});
#pragma once

#include <map>
#include <optional>
#include <string>

#include <sys/types.h>

namespace lockstep {

/// Who starts it waits for it.
pid_t start_part(const std::string& test, const std::map<std::string, std::string>& variables);

/// nullopt: this is the whole program, and the part is nobody's.
std::optional<std::string> part_variable(const std::string& name);

}  // namespace lockstep
