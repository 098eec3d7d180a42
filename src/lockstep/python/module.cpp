// lockstep._core: what python/lockstep is made of.
#include <exception>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <torch/version.h>

#include "lockstep/base/error.h"
#include "lockstep/base/failure.h"
#include "lockstep/base/version.h"
#include "lockstep/python/job_process.h"
#include "lockstep/python/model.h"
#include "lockstep/python/waiting.h"
#include "lockstep/tensor/libtorch_allocators.h"

namespace lockstep::python {
namespace nb = nanobind;
namespace {

/// As lockstep.Error; other modules' exceptions are theirs.
void translate(const std::exception_ptr& thrown, void*) {
  Failure failure;
  std::vector<std::string> frames;
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    failure = {error.code(), error.message(), error.hint(), false};
    frames = error.frames();
  } catch (const nb::builtin_exception&) {
    throw;
  } catch (const std::bad_alloc& error) {
    failure = describe_failure(error);
  } catch (const std::exception& error) {
    failure = describe_failure(error);
  }
  const nb::object kind = nb::module_::import_("lockstep._error").attr("Error");
  const nb::object value = kind(failure.message, static_cast<int>(failure.code), failure.hint, frames);
  PyErr_SetObject(kind.ptr(), value.ptr());
}

}  // namespace
}  // namespace lockstep::python

NB_MODULE(_core, module) {
  using namespace lockstep::python;  // NOLINT: the names of one function
  lockstep::share_process();         // torch may be used here too
  nb::set_leak_warnings(false);      // whoever keeps a model to the end of a program has done nothing wrong
  nb::register_exception_translator(&translate);
  module.attr("version") = lockstep::kVersion;
  module.attr("torch_version") = TORCH_VERSION;
  nb::class_<Model>(module, "Model", nb::is_weak_referenceable())
      .def(nb::init<const Words&, nb::object>(), nb::arg("words"), nb::arg("on_event"))
      .def("answer", &Model::answer, nb::arg("rows"), nb::arg("words"))
      .def(
          "embed",
          [](Model& model, const std::string& rows, const Words& words) {
            VectorsOfRows found = model.embed(rows, words);
            return nb::make_tuple(found.array, found.width, found.rows, found.tokens, found.errors);
          },
          nb::arg("rows"), nb::arg("words"))
      .def("close", &Model::close)
      .def("close_now", &Model::close_now);
  module.def("run_job", &run_job, nb::arg("argv"), nb::arg("on_line"));
  module.def("call_off_all", &Waiting::call_off_all);
}
