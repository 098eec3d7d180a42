// What lockstep_guard/__init__.py calls.
#include "end_mark.h"
#include "interposer.h"
#include "nan_look.h"
#include "watched_calls.h"
#include "work_waits.h"
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "lockstep/guard/board.h"
#include "lockstep/guard/tree_link.h"

namespace nb = nanobind;
using lockstep::python::WatchedCalls;

NB_MODULE(_core, m) {
  m.def("watch_collectives", [] {
    // Where its memory cannot be had, nothing is replaced: no call of a job may fail for it. This one is let go: processes that are
    // forked from here are ranks each.
    (void)lockstep::BoardMemory::create();
    return lockstep::python::watch_collectives();
  });
  m.def(
      "join",
      [](int rank, int world_size, int local_rank, int node, const std::string& agent, const std::string& error_file,
         const std::string& meeting, uint64_t main_thread, bool ends_with_parent) {
        WatchedCalls::instance().join({.rank = rank,
                                       .world_size = world_size,
                                       .local_rank = local_rank,
                                       .node = node,
                                       .agent = agent,
                                       .error_file = error_file,
                                       .meeting = meeting,
                                       .main_thread = main_thread,
                                       .ends_with_parent = ends_with_parent});
      },
      nb::arg("rank"), nb::arg("world_size"), nb::arg("local_rank"), nb::arg("node"), nb::arg("agent"),
      nb::arg("error_file"), nb::arg("meeting"), nb::arg("main_thread"), nb::arg("ends_with_parent"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "begin", [] { WatchedCalls::instance().begin(); }, nb::call_guard<nb::gil_scoped_release>());
  m.def("tree_parent", &lockstep::tree_parent, nb::arg("node"));
  m.def("tree_port", [] { return WatchedCalls::instance().tree_port(); });
  m.def(
      "tell_salt", [](const std::string& salt) { WatchedCalls::instance().tell_salt(salt); }, nb::arg("salt"));
  m.def(
      "tell_parent", [](const std::string& host, int port) { WatchedCalls::instance().tell_parent(host, port); },
      nb::arg("host"), nb::arg("port"));
  m.def(
      "tell_ended", [](int rank, int exit_code) { WatchedCalls::instance().tell_ended(rank, exit_code); },
      nb::arg("rank"), nb::arg("exit_code"), nb::call_guard<nb::gil_scoped_release>());
  m.def("mark_end", &lockstep::python::mark_end, nb::arg("path"));
  m.def(
      "learn_group",
      [](const std::string& name, const std::string& title, const std::vector<int>& ranks, bool apart) {
        WatchedCalls::instance().learn_group(name, title, ranks, apart);
      },
      nb::arg("name"), nb::arg("title"), nb::arg("ranks"), nb::arg("apart"));
  m.def(
      "set_patience",
      [](const std::string& name, double seconds) { WatchedCalls::instance().set_patience(name, seconds); },
      nb::arg("name"), nb::arg("seconds"));
  m.def(
      "leave", [] { WatchedCalls::instance().leave(); }, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "watch_waits",
      [](nb::handle work_class) {
        if (!lockstep::python::watch_waits(work_class.ptr())) nb::raise_python_error();
      },
      nb::arg("work_class"));
  m.def(
      "make_group",
      [](const std::vector<int>& ranks) -> std::optional<std::pair<int, uint64_t>> {
        const auto call = WatchedCalls::instance().make_group(ranks);
        return call ? std::make_optional(std::pair(call->group, call->seq)) : std::nullopt;
      },
      nb::arg("ranks"));
  m.def(
      "group_made",
      [](std::pair<int, uint64_t> call, bool broken) {
        WatchedCalls::instance().over({.group = call.first, .seq = call.second, .entered_ns = lockstep::steady_ns()},
                                      broken);
      },
      nb::arg("call"), nb::arg("broken"));
  m.def(
      "block", [](bool blocks) { return WatchedCalls::instance().block(blocks); }, nb::arg("blocks"));
  m.def("label", &WatchedCalls::label, nb::arg("text"));
  m.def(
      "holds_nan",
      [](uintptr_t data, int64_t count, const std::string& dtype) {
        return lockstep::python::holds_nan(reinterpret_cast<const void*>(data), count, dtype);
      },
      nb::arg("data"), nb::arg("count"), nb::arg("dtype"));
  m.def("tell_nan", &lockstep::python::tell_nan, nb::arg("holds").none());
  m.def(
      "show_structure",
      [](const std::string& label, const std::string& json) { WatchedCalls::instance().show_structure(label, json); },
      nb::arg("label"), nb::arg("json"));
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
      "finish", [](int exit_code, const std::string& place) { WatchedCalls::instance().finish(exit_code, place); },
      nb::arg("exit_code"), nb::arg("place") = "", nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "end_with",
      [](const std::string& message, const std::string& place, bool secondary, int code) {
        WatchedCalls::instance().end_with(message, place, secondary, code);
      },
      nb::arg("message"), nb::arg("place"), nb::arg("secondary"), nb::arg("code"));
  m.def(
      "stand_at", [](const std::string& place) { WatchedCalls::instance().stand_at(place); }, nb::arg("place"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "leave_group", [](const std::string& name) { WatchedCalls::instance().leave_group(name); }, nb::arg("name"),
      nb::call_guard<nb::gil_scoped_release>());
  m.def("counts", [] {
    const auto counts = WatchedCalls::instance().counts();
    nb::dict out;
    out["calls"] = counts.calls;
    out["unwatched"] = counts.unwatched;
    out["bytes"] = counts.bytes;
    out["seconds_by_rank"] = counts.seconds_of_ranks;
    return out;
  });
}
