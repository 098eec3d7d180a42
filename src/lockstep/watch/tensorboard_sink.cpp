#include "lockstep/watch/tensorboard_sink.h"

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
#include "lockstep/watch/curve_points.h"
#include "lockstep/watch/tfrecord.h"

namespace lockstep {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

TensorBoardSink::TensorBoardSink(std::filesystem::path folder) : folder_(std::move(folder)) {}

void TensorBoardSink::on(const Event& event) {
  if (const auto* run = std::get_if<RunStarted>(&event)) start(*run);
  if (!file_.is_open()) return;
  const CurvePoints points = curve_points(event);
  for (const auto& [tag, value] : points.values) scalar(points.step, tag, value);
  if (!points.values.empty()) file_.flush();
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
