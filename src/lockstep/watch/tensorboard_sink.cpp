#include "lockstep/watch/tensorboard_sink.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/new_file.h"
#include "lockstep/watch/tfrecord.h"

namespace lockstep {
namespace {

constexpr size_t kMostRanks = 16;  // whose memory is drawn

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TensorBoardSink::TensorBoardSink(std::filesystem::path folder) : folder_(std::move(folder)) {}

void TensorBoardSink::on(const Event& event) {
  if (const auto* run = std::get_if<RunStarted>(&event)) start(*run);
  if (!file_.is_open()) return;
  if (const auto* done = std::get_if<StepDone>(&event)) step(*done);
  if (const auto* measured = std::get_if<MemoryMeasured>(&event)) memory(*measured);
  if (const auto* done = std::get_if<EvalDone>(&event)) eval(*done);
}

void TensorBoardSink::start(const RunStarted& run) {
  make_folders(folder_);
  const double now = wall_seconds();
  path_ =
      folder_ / fmt::format("events.out.tfevents.{:010d}.{}.{}.0", static_cast<int64_t>(now), host_name(), getpid());
  file_ = std::ofstream(path_, std::ios::binary | std::ios::app);
  write(file_version_event(now));
  // A resumed run repeats the steps after its checkpoint; the earlier file's copies of them must not show.
  if (run.start_step > 0) write(session_start_event(now, run.start_step + 1));
  if (!run.args_json.empty()) {
    const std::string pretty = parse_json(run.args_json, "args").dump(2, ' ', false, Json::error_handler_t::replace);
    write(text_event(now, 0, "args", "```json\n" + pretty + "\n```"));
  }
  file_.flush();
}

void TensorBoardSink::step(const StepDone& step) {
  scalar(step.step, "train/loss", step.loss);
  scalar(step.step, "train/grad_norm", step.grad_norm);
  scalar(step.step, "train/learning_rate", step.learning_rate);
  for (const auto& [name, rate] : step.component_rates) scalar(step.step, "train/learning_rate_" + name, rate);
  scalar(step.step, "train/epoch", step.epoch);
  if (step.token_accuracy >= 0) scalar(step.step, "train/token_acc", step.token_accuracy);
  if (step.talker_loss >= 0) scalar(step.step, "train/talker_loss", step.talker_loss);
  scalar(step.step, "train/tokens_per_second", step.tokens_per_second);
  if (!step.peak_bytes.empty()) {
    const auto peak = *std::max_element(step.peak_bytes.begin(), step.peak_bytes.end());
    scalar(step.step, "train/memory_gib", static_cast<double>(peak) / (1 << 30));
  }
  file_.flush();
}

void TensorBoardSink::memory(const MemoryMeasured& memory) {
  if (memory.last) return;  // the step has its points
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); };
  for (size_t rank = 0; rank < std::min(memory.ranks.size(), kMostRanks); ++rank) {
    const RankMemory& one = memory.ranks[rank];
    const std::string tag = fmt::format("memory/rank{}/", rank);
    scalar(memory.step, tag + "resident_gib", gib(one.resident_bytes));
    for (const auto* device : one.since_last.everything()) {
      scalar(memory.step, tag + device->name + "_alive_gib", gib(device->alive));
      scalar(memory.step, tag + device->name + "_peak_gib", gib(device->peak_bytes()));
    }
  }
  file_.flush();
}

void TensorBoardSink::eval(const EvalDone& eval) {
  scalar(eval.step, "eval/loss", eval.loss);
  if (eval.token_accuracy >= 0) scalar(eval.step, "eval/token_acc", eval.token_accuracy);
  if (eval.talker_loss >= 0) scalar(eval.step, "eval/talker_loss", eval.talker_loss);
  if (eval.exact_match >= 0) scalar(eval.step, "eval/exact_match", eval.exact_match);
  for (const auto& [name, value] : eval.metrics) scalar(eval.step, "eval/" + name, value);
  file_.flush();
}

void TensorBoardSink::scalar(int64_t step, std::string_view tag, double value) {
  write(scalar_event(wall_seconds(), step, tag, static_cast<float>(value)));
}

void TensorBoardSink::write(std::string_view event) {
  const std::string record = frame_record(event);
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
  if (!file_) {
    throw data_error(fmt::format("{}: cannot be written ({})", path_.string(), std::strerror(errno)),
                     "is the disk full, or the folder read-only?");
  }
}

}  // namespace lockstep
