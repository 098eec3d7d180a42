#include "lockstep/python/model.h"

#include <utility>

#include <nanobind/stl/string.h>  // what Python is called with
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/watch/event_lines.h"

namespace lockstep::python {
namespace nb = nanobind;
namespace {

Dataset dataset_of(const std::string& rows, const RowOptions& options, EventBus& events) {
  DatasetOptions reading = options.dataset();
  reading.may_be_empty = true;
  Dataset data = Dataset::of_text("rows", rows, reading);
  for (const auto& text : data.notices()) events.emit(Notice{text});
  return data;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// An array over numbers that go with it.
VectorsOfRows handed_over(RowVectors&& found) {
  auto* values = new std::vector<float>(std::move(found.values));  // NOLINT: the capsule's, which Python holds
  const nb::capsule owner(values, [](void* held) noexcept { delete static_cast<std::vector<float>*>(held); });
  const auto width = static_cast<size_t>(found.width);
  const size_t vectors = width == 0 ? 0 : values->size() / width;
  return {{values->data(), {vectors, width}, owner},
          found.width,
          std::move(found.rows),
          std::move(found.tokens),
          std::move(found.errors)};
}

}  // namespace

class Model::Told final : public EventSink {
 public:
  Told(ModelThread& thread, nb::object on_event) : thread_(thread), on_event_(std::move(on_event)) {}
  void on(const Event& event) override {
    const std::string text = text_of(event_json(event));
    thread_.call([&] { on_event_(text); });
  }

 private:
  ModelThread& thread_;
  nb::object on_event_;
};

Model::Model(const Words& words, nb::object on_event) : told_(std::make_unique<Told>(thread_, std::move(on_event))) {
  events_.add(*told_);
  std::vector<std::string> notices;
  words_ = parse_model_words(words, Env::process(), notices);
  thread_.run([&] {
    tell(notices);
    model_ = std::make_unique<OpenModel>(words_.run, events_);
  });
}

void Model::tell(const Words& notices) const {
  for (const auto& text : notices) events_.emit(Notice{text});
}

Model::~Model() {
  if (thread_.is_lost()) {  // what another process holds, or a thread that does not come back
    (void)model_.release();
    (void)told_.release();
  }
  try {
    close();
  } catch (...) {  // Ctrl-C once more: what is not given back goes with the process
    (void)model_.release();
  }
}

void Model::close() {
  if (!thread_.is_lost()) thread_.run([&] { model_.reset(); });
}

void Model::close_now() {
  thread_.call_off();
  close();
}

OpenModel& Model::open() {
  if (model_) return *model_;
  throw usage_error("the model is closed", "open it again: lockstep.Model(folder)");
}

std::string Model::answer(const std::string& rows, const Words& words) {
  std::vector<std::string> notices;
  const AnswerFileOptions options = parse_answering_words(words, words_, Env::process(), notices);
  std::string text;
  thread_.run([&] {
    tell(notices);
    text = text_of(open().answer(dataset_of(rows, options.rows, events_), options, events_));
  });
  return text;
}

VectorsOfRows Model::embed(const std::string& rows, const Words& words) {
  std::vector<std::string> notices;
  const EmbeddingOptions options = parse_embedding_words(words, words_, Env::process(), notices);
  RowVectors found;
  thread_.run([&] {
    tell(notices);
    found = open().embed(dataset_of(rows, options.rows, events_), options, events_);
  });
  return handed_over(std::move(found));
}

}  // namespace lockstep::python
