// Where in a person's Python a call was made, told without the interpreter's lock: c10d has given it up by then, and to take
// it again would cost a job more than the call.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::python {

/// "train.py:41 in main, via accelerate/operations.py:355": the nearest frame outside torch, this package and what is
/// installed, and the nearest outside torch alone where it is another. Empty: this thread runs no Python.
std::string_view site_of_this_thread();

}  // namespace lockstep::python
