// Threads of a Python program that wait in here without Python's lock. When Python ends, a daemon thread that asks for the lock again
// is ended where it stands, which C++ cannot bear: before that, all of them are called off, and waited for.
//
// Example:
//   const Waiting here;                             // with the lock
//   while (!done()) { … if (Waiting::called_off()) give_up(); }
#pragma once

namespace lockstep::python {

class Waiting {
 public:
  /// Throws UserError in a thread that was called off.
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  /// Python is about to end, by another thread than this.
  static bool called_off();
  /// Of the thread that ends Python, with its lock, which it lets go of meanwhile: returns when nobody waits any more, or can begin to.
  static void call_off_all();
};

}  // namespace lockstep::python
