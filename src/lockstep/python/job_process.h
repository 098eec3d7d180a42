// A verb of the program as a process of its own, started from Python: it can have any number of ranks, gives back all that it has
// taken, and does what it does on the command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

namespace lockstep::python {

/// Runs `argv`, the program first, and calls `on_line` with each line that it tells (watch/event_lines.h); where that is true, the
/// job is asked to stop. An exception of `on_line` or of a signal handler stops it too, as Ctrl-C does on the command line, and is
/// thrown when it has ended: the first asks, the second ends it without saving, the third kills it. Returns its exit code, 128 and
/// more for a signal; nullopt: nobody knows, as this program ignores SIGCHLD or waits for whatever child there is. It ends when the
/// calling thread does, and when Python ends.
std::optional<int> run_job(const std::vector<std::string>& argv, const nanobind::object& on_line);

}  // namespace lockstep::python
