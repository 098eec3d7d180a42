// Ctrl-C of a Python: its signal handlers run on the main thread alone, where someone asks for them with the lock held.
#pragma once

#include <optional>

#include <nanobind/nanobind.h>

namespace lockstep::python {

/// What a Python program wants of work that is under way: to end, with an exception of its own.
class CallOff {
 public:
  /// Runs Python's signal handlers. Needs the lock. True: one of them has raised just now.
  bool asked() {
    if (PyErr_CheckSignals() == 0) return false;
    take();
    return true;
  }
  /// Of a callback: its exception is the one that ends the work. Needs the lock.
  void take(nanobind::python_error&& error) {
    if (!error_) error_.emplace(std::move(error));
  }
  /// When the work has ended.
  void raise() {
    if (error_) throw nanobind::python_error(std::move(*error_));
  }

 private:
  void take() {
    nanobind::python_error error;  // the one that stands
    take(std::move(error));
  }

  std::optional<nanobind::python_error> error_;
};

}  // namespace lockstep::python
