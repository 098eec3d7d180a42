#include "lockstep/watch/event_lines.h"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/text_format.h"
#include "lockstep/watch/communication_table.h"
#include "lockstep/watch/memory_summary.h"

namespace lockstep {
namespace {

/// What was not measured is null.
Json measured(double value) { return value >= 0 ? Json(value) : Json(); }

Json as_json(const RunStarted& run) {
  return {{"event", "started"},
          {"verb", run.verb},
          {"output_dir", run.output_dir},
          {"model_family", run.model_family},
          {"world_size", run.world_size},
          {"start_step", run.start_step},
          {"max_steps", run.max_steps},
          {"num_params", run.num_params},
          {"num_trainable_params", run.num_trainable_params}};
}

Json as_json(const StepDone& step) {
  Json out = {{"event", "step"},
              {"step", step.step},
              {"max_steps", step.max_steps},
              {"epoch", step.epoch},
              {"loss", step.loss},
              {"grad_norm", step.grad_norm},
              {"learning_rate", step.learning_rate},
              {"token_acc", measured(step.token_accuracy)},
              {"talker_loss", measured(step.talker_loss)},
              {"tokens_per_second", step.tokens_per_second},
              {"seconds_per_step", step.seconds_per_step},
              {"elapsed_seconds", step.elapsed_seconds},
              {"remaining_seconds", step.remaining_seconds},
              {"loss_scale", step.loss_scale},
              {"tokens_seen", step.tokens_seen},
              {"samples_seen", step.samples_seen},
              {"skipped_rows", step.skipped_rows},
              {"peak_bytes", step.peak_bytes},
              {"predicted_bytes", step.predicted_bytes}};
  for (const auto& [name, rate] : step.component_rates) out["component_rates"][name] = rate;
  return out;
}

Json as_json(const MemoryMeasured& memory) {
  Json out = memory_json(memory);
  out["event"] = "memory";
  out["last"] = memory.last;
  return out;
}

Json as_json(const EvalDone& eval) {
  Json metrics = Json::object(), groups = Json::object();
  for (const auto& [name, value] : eval.metrics) metrics[name] = value;
  for (const auto& [name, share] : eval.groups) groups[name] = share;
  return {{"event", "eval"},
          {"step", eval.step},
          {"epoch", eval.epoch},
          {"num_samples", eval.num_samples},
          {"loss", eval.loss},
          {"token_acc", measured(eval.token_accuracy)},
          {"exact_match", measured(eval.exact_match)},
          {"talker_loss", measured(eval.talker_loss)},
          {"seconds", eval.seconds},
          {"metrics", metrics},
          {"groups", groups},
          {"samples", samples_json(eval.samples)}};
}

Json as_json(const CheckpointSaved& saved) {
  return {{"event", "saved"},
          {"step", saved.step},
          {"path", saved.path},
          {"bytes", saved.bytes},
          {"seconds", saved.seconds}};
}

Json as_json(const Notice& notice) { return {{"event", "notice"}, {"message", notice.text}}; }

Json as_json(const Progress& progress) {
  return {{"event", "progress"}, {"phase", progress.phase}, {"done", progress.done}, {"total", progress.total}};
}

Json as_json(const BatchSized& batch) {
  Json tries = Json::array();
  for (const auto& one : batch.tries) tries.push_back({{"rows", one.rows}, {"bytes", one.bytes}, {"fits", one.fits}});
  return {{"event", "batch_size"}, {"rows", batch.rows}, {"limit_bytes", batch.limit_bytes}, {"tries", tries}};
}

Json as_json(const RowsKept& rows) {
  return {{"event", "kept"}, {"how", rows.how}, {"kept", rows.kept}, {"total", rows.total}};
}

Json as_json(const RunEnded& run) {
  Json out = {{"event", "ended"},
              {"outcome", run.outcome},
              {"exit_code", run.exit_code},
              {"seconds", run.seconds},
              {"train_loss", run.train_loss},
              {"samples_per_second", run.samples_per_second},
              {"steps_per_second", run.steps_per_second},
              {"step", run.step},
              {"last_checkpoint", run.last_checkpoint},
              {"next_command", run.next_command}};
  if (!run.communication.empty()) out["communication"] = communication_json(run.communication, /*labels=*/false);
  return out;
}

}  // namespace

Json samples_json(const std::vector<SamplePrediction>& samples) {
  Json list = Json::array();
  for (const auto& one : samples) {
    list.push_back({{"prompt", one.prompt},
                    {"expected", one.expected},
                    {"predicted", one.predicted},
                    {"image", one.image_path},
                    {"exact", one.exact}});
  }
  return list;
}

Json event_json(const Event& event) {
  return std::visit([](const auto& value) { return as_json(value); }, event);
}

EventLines::EventLines(int fd) : fd_(fd), console_(text_, {}) {}

void EventLines::keep_to_self() const {
  ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
  ::unsetenv("LOCKSTEP_EVENTS");
}

void EventLines::on(const Event& event) {
  text_.str({});
  console_.on(event);
  Json line = event_json(event);
  line["text"] = text_.str();
  write(line);
}

void EventLines::result(const Json& value) { write({{"event", "result"}, {"result", value}}); }

void EventLines::error(const Failure& failure, const std::vector<std::string>& frames, size_t most) {
  write({{"event", "error"},
         {"code", static_cast<int>(failure.code)},
         {"message", cut_text(failure.message, most)},
         {"hint", cut_text(failure.hint, most)},
         {"frames", frames}});
}

/// Whoever read may have gone: then the run goes on without.
void EventLines::write(const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (size_t at = 0; taken_ && at < text.size();) {
    const ssize_t size = ::write(fd_, text.data() + at, text.size() - at);
    if (size > 0) at += static_cast<size_t>(size);
    if (size < 0 && errno != EINTR) taken_ = false;
  }
}

}  // namespace lockstep
