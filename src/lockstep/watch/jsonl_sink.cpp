#include "lockstep/watch/jsonl_sink.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/new_file.h"
#include "lockstep/base/text_format.h"
#include "lockstep/watch/communication_table.h"
#include "lockstep/watch/log_record.h"
#include "lockstep/watch/memory_summary.h"

namespace lockstep {
namespace {

std::string to_line(const Json& record) { return record.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

JsonlSink::JsonlSink(std::filesystem::path path) : path_(std::move(path)) {}
JsonlSink::~JsonlSink() = default;

void JsonlSink::on(const Event& event) {
  if (const auto* run = std::get_if<RunStarted>(&event)) start(*run);
  if (!file_.is_open()) return;
  if (const auto* step = std::get_if<StepDone>(&event)) {
    epoch_ = step->epoch;
    max_steps_ = step->max_steps;
    for (const int64_t peak : step->peak_bytes) peak_bytes_ = std::max(peak_bytes_, peak);
    history_.push_back(to_record(*step));
    write(history_.back());
  } else if (const auto* memory = std::get_if<MemoryMeasured>(&event)) {
    write(memory_record(*memory));
  } else if (const auto* eval = std::get_if<EvalDone>(&event)) {
    remember_best(*eval);
    history_.push_back(to_record(*eval, max_steps_));
    write(history_.back());
  } else if (const auto* saved = std::get_if<CheckpointSaved>(&event)) {
    last_checkpoint_ = saved->path;
    if (saved->step == best_step_) best_checkpoint_ = saved->path;
  } else if (const auto* ended = std::get_if<RunEnded>(&event)) {
    end(*ended);
  }
}

void JsonlSink::start(const RunStarted& run) {
  run_ = run;
  max_steps_ = run.max_steps;
  if (path_.has_parent_path()) make_folders(path_.parent_path());
  if (run.verb == "sft") {
    std::string kept;
    for (Json& record : run.start_step > 0 ? read_records(path_, run.start_step) : std::vector<Json>()) {
      kept += to_line(record);
      if (const auto step = read_step_record(record)) epoch_ = step->epoch;
      if (const auto eval = read_eval_record(record)) remember_best(*eval);
      if (!record.contains(kMemoryRecordKey)) history_.push_back(std::move(record));
    }
    write_text(path_, kept);
  }
  file_ = std::ofstream(path_, std::ios::binary | std::ios::app);
  if (!file_) throw data_error(fmt::format("{}: cannot be opened ({})", path_.string(), std::strerror(errno)));
}

void JsonlSink::remember_best(const EvalDone& eval) {
  if (!(eval.loss < best_loss_)) return;
  best_loss_ = eval.loss;
  best_step_ = eval.step;
  best_checkpoint_.clear();
}

void JsonlSink::end(const RunEnded& run) {
  if (run_.verb == "sft") {
    Json summary;
    summary["train_runtime"] = std::round(run.seconds * 1e4) / 1e4;
    summary["train_samples_per_second"] = nine_digits(run.samples_per_second);
    summary["train_steps_per_second"] = nine_digits(run.steps_per_second);
    summary["train_loss"] = nine_digits(run.train_loss);
    summary["epoch"] = nine_digits(epoch_);
    summary["global_step/max_steps"] = fmt::format("{}/{}", run.step, max_steps_);
    summary["elapsed_time"] = swift_duration(run.seconds);
    write(summary);
  }
  Json final;
  final["model_parameter_info"] = fmt::format("{}: {} Params ({} Trainable)", run_.model_family,
                                              format_count(run_.num_params), format_count(run_.num_trainable_params));
  final["last_model_checkpoint"] = text_or_null(run.last_checkpoint.empty() ? last_checkpoint_ : run.last_checkpoint);
  const double best = run.best_metric.value_or(best_loss_);
  final["best_model_checkpoint"] = text_or_null(run.best_metric ? run.best_checkpoint : best_checkpoint_);
  final["best_metric"] = std::isfinite(best) ? Json(nine_digits(best)) : Json();
  final["global_step"] = run.step;
  final["log_history"] = history_;
  final["memory"] = nine_digits(static_cast<double>(peak_bytes_) / (1 << 30));
  if (!run.communication.empty()) final["communication"] = communication_json(run.communication, /*labels=*/false);
  final["outcome"] = run.outcome;
  final["exit_code"] = run.exit_code;
  write(final);
}

void JsonlSink::write(const Json& record) {
  const std::string line = to_line(record);
  file_.write(line.data(), static_cast<std::streamsize>(line.size()));
  file_.flush();
  if (!file_) {
    throw data_error(fmt::format("{}: cannot be written ({})", path_.string(), std::strerror(errno)),
                     "is the disk full?");
  }
}

}  // namespace lockstep
