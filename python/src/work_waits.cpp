#include "work_waits.h"

#include <array>
#include <cstring>

#include "watched_calls.h"

namespace lockstep::python {
namespace {

PyObject* original = nullptr;

/// What a pybind11 object holds: a pointer to its value, then the pointer that owns it; the two are one address here. Only
/// compared, never followed: an object of another layout is one that is not known.
const void* value_of(PyObject* object) {
  std::array<const void*, 2> words{};
  if (Py_TYPE(object)->tp_basicsize < static_cast<Py_ssize_t>(sizeof(PyObject) + sizeof words)) return nullptr;
  std::memcpy(words.data(), reinterpret_cast<const char*>(object) + sizeof(PyObject), sizeof words);
  return words[0] == words[1] ? words[0] : nullptr;
}

PyObject* wait(PyObject* /*module*/, PyObject* const* args, Py_ssize_t count, PyObject* names) {
  WatchedCalls& calls = WatchedCalls::instance();
  const auto call =
      count > 0 && calls.joined() && calls.any_silent() ? calls.wait_begins(value_of(args[0])) : std::nullopt;
  PyObject* const result = PyObject_Vectorcall(original, args, static_cast<size_t>(count), names);
  if (call) calls.over(*call, result == nullptr);
  return result;
}

PyMethodDef method{"wait", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&wait)),
                   METH_FASTCALL | METH_KEYWORDS, nullptr};

}  // namespace

bool watch_waits(PyObject* work_class) {
  if (original != nullptr) return true;
  PyObject* const found = PyObject_GetAttrString(work_class, "wait");
  if (found == nullptr) return false;
  PyObject* const document = PyObject_GetAttrString(found, "__doc__");
  if (document != nullptr && PyUnicode_Check(document))
    method.ml_doc = PyUnicode_AsUTF8(document);  // as long as `found` lives
  PyErr_Clear();
  PyObject* const function = PyCFunction_New(&method, nullptr);
  PyObject* const bound =
      function == nullptr ? nullptr : PyInstanceMethod_New(function);  // is given the work it is called on
  original = found;
  const bool done = bound != nullptr && PyObject_SetAttrString(work_class, "wait", bound) == 0;
  Py_XDECREF(function);
  Py_XDECREF(bound);
  if (!done) original = nullptr;
  return done;
}

}  // namespace lockstep::python
