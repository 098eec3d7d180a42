// What lockstep_guard/__init__.py calls.
#include "interposer.h"
#include "watched_calls.h"
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using lockstep::python::WatchedCalls;

NB_MODULE(_core, m) {
  m.def("watch_collectives", &lockstep::python::watch_collectives);
  m.def(
      "join",
      [](int rank, int world_size, int local_rank, const std::string& agent, const std::string& error_file) {
        WatchedCalls::instance().join({.rank = rank,
                                       .world_size = world_size,
                                       .local_rank = local_rank,
                                       .agent = agent,
                                       .error_file = error_file});
      },
      nb::arg("rank"), nb::arg("world_size"), nb::arg("local_rank"), nb::arg("agent"), nb::arg("error_file"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "enter_phase", [](const std::string& name) { return WatchedCalls::instance().enter_phase(name); },
      nb::arg("name"));
  m.def(
      "say_last_words",
      [](const std::string& message, const std::string& place, bool secondary, int exit_code) {
        WatchedCalls::instance().say_last_words(message, place, secondary, exit_code);
      },
      nb::arg("message"), nb::arg("place"), nb::arg("secondary"), nb::arg("exit_code"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "wait_in_last_call", [] { WatchedCalls::instance().wait_in_last_call(); },
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "await_ending", [](double seconds) { return WatchedCalls::instance().await_ending(seconds); }, nb::arg("seconds"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "finish", [](int exit_code) { WatchedCalls::instance().finish(exit_code); }, nb::arg("exit_code"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def("counts", [] {
    const auto counts = WatchedCalls::instance().counts();
    nb::dict out;
    out["calls"] = counts.calls;
    out["unwatched"] = counts.unwatched;
    return out;
  });
}
