// Threads of a Python program that wait in here without Python's lock. When Python ends, a daemon thread that asks for the lock again
// is ended where it stands, which C++ cannot bear: before that, all of them are called off, and waited for. One that is in a callback
// which does not return is given up: it stands still where it would come back to us, until the process is over.
//
// Example:
//   const Waiting here;                             // with the lock
//   while (!done()) {
//     const WithoutPython others;
//     if (Waiting::called_off()) give_up();
//   }
#pragma once

#include <functional>

#include <nanobind/nanobind.h>
#include <sys/types.h>

namespace lockstep::python {

class Waiting {
 public:
  /// Throws UserError in a thread that was called off.
  Waiting();
  ~Waiting();  // with the lock
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// Python is about to end, by another thread than this.
  static bool called_off();
  /// Python ends, and threads in callbacks were not waited for any longer.
  static bool gave_up();
  /// This thread must not take Python's lock any more: that, by another thread.
  static bool given_up();
  /// Of the thread that ends Python, with its lock, which it lets go of meanwhile: returns when nobody waits any more, or can begin to;
  /// where somebody is in a callback, after some seconds.
  static void call_off_all();

 private:
  const pid_t process_;
};

/// Lets go of Python's lock, within a Waiting. Where that was given up meanwhile, its end does not return.
class WithoutPython {
 public:
  WithoutPython();
  ~WithoutPython();
  WithoutPython(const WithoutPython&) = delete;
  WithoutPython& operator=(const WithoutPython&) = delete;

 private:
  PyThreadState* const state_;
};

/// Takes Python's lock for a callback of the program's, which may take any time. Where the lock was given up meanwhile, it does not
/// return. False: Waiting::given_up(), and nothing was called.
bool call_python(const std::function<void()>& callback);

}  // namespace lockstep::python
