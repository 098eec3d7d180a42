// lockstep._core.Model: an OpenModel on a thread of its own, with rows, answers and events as JSON text.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "lockstep/cli/model_words.h"
#include "lockstep/python/model_thread.h"
#include "lockstep/tasks/open_model.h"

namespace lockstep::python {

using Words = std::vector<std::string>;

/// The vectors of rows, as an array that owns its memory: [vectors, width].
struct VectorsOfRows {
  nanobind::ndarray<nanobind::array_api, float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu> array;
  int64_t width = 0;
  std::vector<int64_t> rows, tokens;
  std::map<int64_t, std::string> errors;
};

class Model {
 public:
  /// `on_event` is called with each event as JSON text. All three throw Error, and what Python's signal handlers or `on_event` raise.
  Model(const Words& words, nanobind::object on_event);
  ~Model();

  /// `rows`: a JSON array. Returns one.
  std::string answer(const std::string& rows, const Words& words);
  VectorsOfRows embed(const std::string& rows, const Words& words);
  /// Other threads' calls end, with Interrupted. Then close().
  void close_now();
  /// Gives back what it holds; it cannot be used any more. Again: nothing.
  void close();

 private:
  class Told;
  OpenModel& open();
  void tell(const Words& notices) const;

  ModelWords words_;
  std::unique_ptr<Told> told_;
  EventBus events_;
  std::unique_ptr<OpenModel> model_;  // of the thread
  ModelThread thread_;
};

}  // namespace lockstep::python
