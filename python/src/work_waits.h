// `work.wait()`, as Python calls it: the moment at which a thread begins to wait for what was begun before.
#pragma once

#include <Python.h>

namespace lockstep::python {

/// Puts a function in the place of `wait` of torch's class Work; that of a person's own class is left as it is. False: Python's error is set.
bool watch_waits(PyObject* work_class);

}  // namespace lockstep::python
