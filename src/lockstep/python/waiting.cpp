#include "lockstep/python/waiting.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <cxxabi.h>  // how glibc ends a thread: by an exception of its own
#include <unistd.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"

namespace lockstep::python {
namespace nb = nanobind;
namespace {

/// Of one process, behind Python's lock: a fork copies the numbers, and leaves the threads behind.
struct Threads {
  pid_t process = 0;
  int waiting = 0;
  int in_python = 0;  // in callbacks, for some of those who wait
};

std::atomic<std::thread::id> ending{std::thread::id()};  // the thread that ends Python; none before
std::atomic<bool> has_given_up{false};                   // changes behind Python's lock
Threads counted;

Threads& threads() {
  if (counted.process != ::getpid()) counted = {.process = ::getpid()};
  return counted;
}

/// Its frames stay as they are: neither C++ nor Python has to clean up behind it.
[[noreturn]] void stand_still() {
  for (;;) ::pause();
}

/// Has the lock, and keeps it unless there is nothing left to do with it.
void go_on_if_allowed() {
  if (!Waiting::given_up()) return;
  PyEval_SaveThread();
  stand_still();
}

/// As nanobind's, which lets nothing through where Python ends while it is asked for.
class Lock {
 public:
  Lock() {
    try {
      state_ = PyGILState_Ensure();
    } catch (abi::__forced_unwind&) {
      stand_still();
    }
  }
  ~Lock() { PyGILState_Release(state_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  PyGILState_STATE state_;
};

/// With the lock.
class InCallback {
 public:
  InCallback() : process_(::getpid()) { ++threads().in_python; }
  ~InCallback() {
    go_on_if_allowed();
    if (process_ == ::getpid()) --threads().in_python;
  }
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;

 private:
  const pid_t process_;
};

}  // namespace

Waiting::Waiting() : process_(::getpid()) {
  if (called_off()) throw usage_error("this program is about to end: no more work is begun");
  ++threads().waiting;
}

Waiting::~Waiting() {
  if (process_ == ::getpid()) --threads().waiting;
}

bool Waiting::called_off() {
  const std::thread::id ends = ending;
  return ends != std::thread::id() && ends != std::this_thread::get_id();
}

bool Waiting::gave_up() { return has_given_up; }

bool Waiting::given_up() { return gave_up() && called_off(); }

void Waiting::call_off_all() {
  constexpr auto kLook = std::chrono::milliseconds(5);
  constexpr auto kPatience = std::chrono::seconds(5);  // with callbacks: what is ours comes to an end by itself
  ending = std::this_thread::get_id();
  const auto until = Clock::now() + kPatience;
  while (threads().waiting > 0) {  // with the lock: who was about to wait has begun to
    if (threads().in_python > 0 && Clock::now() > until) {
      has_given_up = true;
      return;
    }
    const nb::gil_scoped_release others;
    std::this_thread::sleep_for(kLook);
  }
}

WithoutPython::WithoutPython() : state_(PyEval_SaveThread()) {}

WithoutPython::~WithoutPython() {
  if (Waiting::given_up()) stand_still();
  try {
    PyEval_RestoreThread(state_);
  } catch (abi::__forced_unwind&) {  // Python ended while it asked
    stand_still();
  }
  go_on_if_allowed();
}

bool call_python(const std::function<void()>& callback) {
  if (Waiting::given_up()) return false;
  const Lock lock;
  if (Waiting::given_up()) return false;
  const InCallback counted;
  try {
    callback();
  } catch (abi::__forced_unwind&) {  // Python ended in there: the lock is not ours
    stand_still();
  }
  return true;
}

}  // namespace lockstep::python
