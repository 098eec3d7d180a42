// Where the threads of this process stand in Python, asked from a thread that cannot wait for the interpreter's lock.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::python {

/// What the call of the main thread is about, in words; empty where it cannot be told, or the interpreter is busy.
std::string python_subject();

/// Whether the main thread stands in a function of torch or in a person's own line, and not in Python's own locks, queues and
/// files: false where that cannot be told, or the interpreter is busy.
bool python_waits_in_torch();
/// Whether it is asleep until another thread wakes it, as the kernel says.
bool main_thread_sleeps();

/// In which of the models that stand in its lines NaN has come up, and where; waits for the interpreter.
std::string python_nan();

/// Lines as faulthandler writes them, the thread `first` (threading.Thread.ident) before the others. Empty where this Python
/// does not tell.
std::string python_stacks(uint64_t first);

}  // namespace lockstep::python
