// The thread that a model of a Python program stands on: its tensors are counted, and those of the program's own threads are not;
// and who calls it can be interrupted while it works.
#pragma once

#include <functional>
#include <memory>

#include <sys/types.h>

namespace lockstep::python {

class ModelThread {
 public:
  ModelThread();
  ~ModelThread();  // nobody is in run(); needs Python's lock, and lets go of it meanwhile
  ModelThread(const ModelThread&) = delete;
  ModelThread& operator=(const ModelThread&) = delete;

  /// Runs `body` there, behind what others have asked for, and waits without Python's lock. What it throws is thrown here. An
  /// exception of a signal handler (KeyboardInterrupt) ends it at its next interruption_point(). Throws UserError in a process that
  /// was forked: threads stay behind.
  void run(const std::function<void()>& body);
  /// It cannot be waited for: in a process that was forked from the one that has made it; and where Python ends while it is in a
  /// callback that does not return.
  bool is_lost() const;
  /// All that has been asked for ends as soon as it can: who waits for it gets Interrupted.
  void call_off();
  /// Of the thread itself, from within `body`: calls Python, whose exceptions end the work and are thrown by run(). Python that has
  /// ended is not called.
  void call(const std::function<void()>& python);

 private:
  struct Task;
  struct Shared;
  bool is_here() const;

  const pid_t process_;
  std::unique_ptr<Shared> shared_;
};

}  // namespace lockstep::python
