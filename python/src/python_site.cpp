// Frames of the own thread are changed by nobody else while it is here. How they lie is CPython's own affair and differs from
// version to version; a walk needs three facts of each.
#define Py_BUILD_CORE 1
#include <Python.h>
// What CPython keeps for itself.
#include <frameobject.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
#endif

#include <array>
#include <cstdint>
#include <cstring>
#include <string>

#include "python_site.h"
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <unistd.h>

#include "lockstep/guard/flight_ring.h"

namespace lockstep::python {
namespace {

struct Frame {
  PyCodeObject* code = nullptr;
  int last_instruction = 0;
};

constexpr int kDeepest = 64;

/// Calls `visit(frame)` from the innermost outwards, until it says that it is enough.
#if PY_VERSION_HEX < 0x030B0000
template <typename Visit>
void walk(const Visit& visit) {
  PyThreadState* const state = PyGILState_GetThisThreadState();
  PyFrameObject* frame = state == nullptr ? nullptr : state->frame;
  for (int depth = 0; frame != nullptr && depth < kDeepest; ++depth, frame = frame->f_back) {
    if (visit(Frame{frame->f_code, frame->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT))})) return;
  }
}
#else
template <typename Visit>
void walk(const Visit& visit) {
  PyThreadState* const state = PyGILState_GetThisThreadState();
  if (state == nullptr) return;
#if PY_VERSION_HEX < 0x030D0000
  _PyInterpreterFrame* frame = state->cframe == nullptr ? nullptr : state->cframe->current_frame;
#else
  _PyInterpreterFrame* frame = state->current_frame;
#endif
  for (int depth = 0; frame != nullptr && depth < kDeepest; frame = frame->previous) {
#if PY_VERSION_HEX >= 0x030C0000
    if (frame->owner == FRAME_OWNED_BY_CSTACK) continue;  // where C has called in
#endif
#if PY_VERSION_HEX < 0x030D0000
    PyCodeObject* const code = frame->f_code;
#else
    if (!PyCode_Check(frame->f_executable)) continue;
    auto* const code = reinterpret_cast<PyCodeObject*>(frame->f_executable);
#endif
    ++depth;
    if (visit(Frame{code, _PyInterpreterFrame_LASTI(frame) * static_cast<int>(sizeof(_Py_CODEUNIT))})) return;
  }
}
#endif

std::string_view ascii(PyObject* text) {
  if (text == nullptr || !PyUnicode_IS_COMPACT_ASCII(text)) return "?";
  return {reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(text)), static_cast<size_t>(PyUnicode_GET_LENGTH(text))};
}

/// "/…/site-packages/torch/", where its libraries lie: a person's own folder may be called torch too. Its Python files may be
/// known by another path, that of a link.
const std::string& torch_folder() {
  static const std::string folder = [] {
    Dl_info found{};
    const std::string library =
        ::dladdr(reinterpret_cast<const void*>(&c10::warn), &found) != 0 && found.dli_fname != nullptr ? found.dli_fname
                                                                                                       : "";
    const size_t at = library.rfind("/lib/");
    return at == std::string::npos ? std::string("/torch/") : library.substr(0, at + 1);
  }();
  return folder;
}

enum class Whose : uint8_t { kTorch, kLibrary, kUser };

Whose whose(std::string_view file) {
  const auto has = [&](std::string_view part) { return file.find(part) != std::string_view::npos; };
  if (file.empty() || file[0] == '<' || has(torch_folder()) || has("-packages/torch/") || has("/torchinductor_") ||
      has("/lockstep_guard/") || has("/contextlib.py") || has("/runpy.py")) {
    return Whose::kTorch;
  }
  return has("/site-packages/") || has("/dist-packages/") || has("/lib/python3") ? Whose::kLibrary : Whose::kUser;
}

/// What was said of code before: each frame of each call asks. An address may come again for other code.
Whose whose(const PyCodeObject& code) {
  struct Known {
    const void *code = nullptr, *file = nullptr;
    size_t length = 0;
    Whose of = Whose::kTorch;
  };
  thread_local std::array<Known, 256> all;
  const std::string_view file = ascii(code.co_filename);
  Known& known = all[reinterpret_cast<uintptr_t>(&code) / 16 * 0x9E3779B97F4A7C15ULL >> 56];
  if (known.code != &code || known.file != file.data() || known.length != file.size()) {
    known = {&code, file.data(), file.size(), whose(file)};
  }
  return known.of;
}

/// "accelerate/operations.py" of a library, "train.py" of a person.
std::string_view short_name(std::string_view file, Whose of) {
  size_t at = file.rfind('/');
  if (of == Whose::kLibrary && at != std::string_view::npos && at > 0) at = file.rfind('/', at - 1);
  return at == std::string_view::npos ? file : file.substr(at + 1);
}

/// In no more than `room` letters: of a name that is too long its end goes, and never the line.
std::string place(const Frame& frame, Whose of, size_t room) {
  const std::string line = ":" + std::to_string(PyCode_Addr2Line(frame.code, frame.last_instruction));
  std::string name(short_name(ascii(frame.code->co_filename), of));
  if (of == Whose::kLibrary && name.size() + line.size() > room) name = name.substr(name.find('/') + 1);
  if (name.size() + line.size() > room) name = name.substr(0, room - line.size() - 1) + "~";
  return name + line;
}

constexpr size_t kRoom = sizeof(FlightRecord::site) - 1, kRoomBesideLibrary = 26;
constexpr std::string_view kVia = " via ";

/// What was made of a stack before: call sites are few.
struct Known {
  std::array<Frame, 2> frames;
  std::string text;
};

}  // namespace

std::string_view site_of_this_thread() {
  Frame user, library;
  walk([&](const Frame& frame) {
    const Whose of = whose(*frame.code);
    if (of == Whose::kUser) user = frame;
    if (of == Whose::kLibrary && library.code == nullptr) library = frame;
    return of == Whose::kUser;
  });
  thread_local std::array<Known, 256> sites;
  const auto key = reinterpret_cast<uintptr_t>(user.code) / 16 + reinterpret_cast<uintptr_t>(library.code) / 16 * 31 +
                   static_cast<uintptr_t>(user.last_instruction) * 7 + static_cast<uintptr_t>(library.last_instruction);
  Known& known = sites[key % sites.size()];
  const auto same = [](const Frame& a, const Frame& b) {
    return a.code == b.code && a.last_instruction == b.last_instruction;
  };
  if (!same(known.frames[0], user) || !same(known.frames[1], library) || known.text.empty()) {
    known.frames = {user, library};
    static thread_local const bool in_thread = ::getpid() != ::gettid();
    const size_t cut = in_thread ? kInThread.size() : 0, room = kRoom - cut;
    known.text.clear();
    if (user.code != nullptr)
      known.text = place(user, Whose::kUser, library.code == nullptr ? room : kRoomBesideLibrary - cut);
    if (library.code != nullptr) {
      if (!known.text.empty()) known.text += kVia;
      known.text += place(library, Whose::kLibrary, room - known.text.size());
    }
    if (in_thread && user.code != nullptr) known.text += kInThread;
  }
  return known.text;
}

}  // namespace lockstep::python
