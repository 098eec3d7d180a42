#include "lockstep/watch/report_sink.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/json.h"
#include "lockstep/base/new_file.h"
#include "lockstep/watch/log_record.h"
#include "lockstep/watch/report_page.h"

namespace lockstep {

ReportSink::ReportSink(ReportOptions options) : options_(std::move(options)) {
  if (!options_.now) options_.now = [start = Clock::now()] { return seconds_since(start); };
}

void ReportSink::on(const Event& event) {
  if (const auto* run = std::get_if<RunStarted>(&event)) start(*run);
  if (const auto* notice = std::get_if<Notice>(&event)) history_.notices.push_back(notice->text);
  if (const auto* step = std::get_if<StepDone>(&event)) history_.steps.push_back(*step);
  if (const auto* memory = std::get_if<MemoryMeasured>(&event)) history_.memory = *memory;
  if (const auto* eval = std::get_if<EvalDone>(&event)) {
    for (EvalDone& earlier : history_.evals) earlier.samples.clear();  // only the newest answers are shown
    history_.evals.push_back(*eval);
  }
  if (const auto* saved = std::get_if<CheckpointSaved>(&event)) history_.checkpoints.push_back(*saved);
  if (const auto* end = std::get_if<RunEnded>(&event)) history_.end = *end;
  if (!started_ || std::holds_alternative<Progress>(event) || std::holds_alternative<Notice>(event)) return;
  const bool now = std::holds_alternative<RunStarted>(event) || std::holds_alternative<RunEnded>(event);
  if (now || options_.now() - last_write_ >= options_.pause_seconds) write();
}

void ReportSink::start(const RunStarted& run) {
  started_ = true;
  history_.start = run;
  if (run.start_step == 0 || options_.log.empty()) return;
  for (const auto& record : read_records(options_.log, run.start_step)) {
    if (auto step = read_step_record(record)) history_.steps.push_back(std::move(*step));
    if (auto eval = read_eval_record(record)) history_.evals.push_back(std::move(*eval));
  }
}

void ReportSink::write() {
  if (options_.page.has_parent_path()) make_folders(options_.page.parent_path());
  write_text(options_.page, render_report(history_));
  last_write_ = options_.now();
}

}  // namespace lockstep
