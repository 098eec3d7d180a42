#include "python_stacks.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <Python.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::python {
namespace {

constexpr size_t kMost = 1 << 16;

/// What CPython's faulthandler calls from its own watchdog thread, without the lock. Not of its public interface: looked up
/// by name, so that a Python without it is no error.
using Dump = const char* (*)(int fd, PyInterpreterState* interpreter, PyThreadState* current);

constexpr auto kPatience = std::chrono::milliseconds(100);

/// Of a thread that may get the lock too late, or never.
struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  std::optional<std::string> text;
};

std::string ask_python(const char* function) {
  // Who is asked when Python leaves may come to it when there is none any more, and would crash there.
  if (Py_IsInitialized() == 0) return "";
  const PyGILState_STATE state = PyGILState_Ensure();
  std::string text;
  PyObject* const module = PyImport_ImportModule("lockstep_guard._subject");
  PyObject* const said = module == nullptr ? nullptr : PyObject_CallMethod(module, function, nullptr);
  const char* const words = said == nullptr ? nullptr : PyUnicode_AsUTF8(said);
  if (words != nullptr) text = words;
  Py_XDECREF(said);
  Py_XDECREF(module);
  PyErr_Clear();
  PyGILState_Release(state);
  return text;
}

/// "" where the interpreter is busy: then whoever has asked before still waits for it, and is not joined by more.
std::string ask_in_time(const char* function) {
  static std::atomic<bool> asks{false};
  if (asks.exchange(true)) return "";
  const auto answer = std::make_shared<Answer>();
  try {
    std::thread([answer, function] {
      std::string text = ask_python(function);
      asks = false;
      const std::lock_guard lock(answer->mutex);
      answer->text = std::move(text);
      answer->came.notify_all();
    }).detach();
  } catch (const std::system_error&) {  // as many threads as this job may have
    asks = false;
    return "";
  }
  std::unique_lock lock(answer->mutex);
  answer->came.wait_for(lock, kPatience, [&] { return answer->text.has_value(); });
  return answer->text.value_or("");
}

}  // namespace

std::string python_subject() { return ask_in_time("of_main_thread"); }

bool python_waits_in_torch() { return !ask_in_time("waits_in_torch").empty(); }

bool main_thread_sleeps() {
  std::ifstream file(fmt::format("/proc/self/task/{}/syscall", ::getpid()));
  long number = -1;  // "running" while it runs
  return file >> number && number == SYS_futex;
}

std::string python_nan() { return ask_python("nan_of_main_thread"); }

std::string python_stacks(uint64_t first) {
  static const auto dump = reinterpret_cast<Dump>(::dlsym(RTLD_DEFAULT, "_Py_DumpTracebackThreads"));
  const int file = dump == nullptr ? -1 : ::memfd_create("lockstep-stacks", MFD_CLOEXEC);
  if (file < 0) return "";
  dump(file, PyInterpreterState_Main(), nullptr);
  std::string text(kMost, '\0');
  const ssize_t read = ::pread(file, text.data(), text.size(), 0);
  ::close(file);
  text.resize(read > 0 ? static_cast<size_t>(read) : 0);
  const size_t wanted = text.find(fmt::format("Thread 0x{:016x}", first));
  if (wanted != std::string::npos && wanted > 0) text = text.substr(wanted) + "\n" + text.substr(0, wanted);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace lockstep::python
