#include "lockstep/watch/logger_sink.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/search_path.h"
#include "lockstep/watch/curve_points.h"
#include "lockstep/watch/logger_script.h"

namespace lockstep {
namespace {

constexpr std::array kTrackers = {"wandb", "swanlab", "mlflow"};
constexpr auto kToBeReady = std::chrono::seconds(60), kToEnd = std::chrono::seconds(60);
constexpr auto kToEndOfFailure = std::chrono::seconds(5), kNoticed = std::chrono::seconds(2);
constexpr auto kLook = Milliseconds(20);
constexpr size_t kMostWaiting = size_t{16} << 20, kErrorsKept = size_t{16} << 10, kLongestLine = 2000;

/// Appends what is there; false when there will be no more.
bool take(Descriptor& from, std::string& into) {
  std::array<char, 4096> buffer;
  while (from.is_open()) {
    const ssize_t size = ::read(from.get(), buffer.data(), buffer.size());
    if (size > 0) {
      into.append(buffer.data(), static_cast<size_t>(size));
      if (into.size() > kMostWaiting) return true;  // the rest at the next look
    } else if (size < 0 && errno == EINTR) {
      continue;
    } else {
      if (size == 0 || errno != EAGAIN) from.close();
      break;
    }
  }
  return from.is_open();
}

}  // namespace

bool is_tracker(const std::string& name) { return std::ranges::find(kTrackers, name) != kTrackers.end(); }

Program logger_program(const std::string& name, const std::string& search_path) {
  if (!is_tracker(name)) return find_program("--report_to", name, search_path);
  for (const char* const python : {"python3", "python"}) {
    const std::string path = program_on(search_path, python);
    if (!path.empty()) {
      return {
          .flag = "--report_to", .text = name, .path = path, .argv = {path, "-c", std::string(kLoggerScript), name}};
    }
  }
  throw usage_error(
      fmt::format("--report_to {}: it is fed by a Python package, and there is no python3 along PATH", name),
      "activate the environment that has it, or --report_to tensorboard");
}

LoggerSink::LoggerSink(Program program, LoggerOptions options, const EventBus& bus)
    : program_(std::move(program)),
      options_(std::move(options)),
      bus_(bus),
      child_(start_program(program_, in_.read.get(), out_.write.get(), err_.write.get(), /*ends_with_thread=*/false)) {
  in_.read.close();
  for (Pipe* pipe : {&out_, &err_}) {
    pipe->write.close();
    ::fcntl(pipe->read.get(), F_SETFL, O_NONBLOCK);
  }
  ::fcntl(in_.write.get(), F_SETFL, O_NONBLOCK);
  await_ready();
}

/// Its input ends, and so does it.
LoggerSink::~LoggerSink() {
  if (child_) child_->let_go();
}

void LoggerSink::await_ready() {
  const Deadline deadline(kToBeReady);
  const Deadline unnoticed(kNoticed);
  bool noticed = false;
  while (said_.find('\n') == std::string::npos && !child_->ended() && !deadline.passed()) {
    std::array<pollfd, 2> fds = {{{out_.read.get(), POLLIN, 0}, {err_.read.get(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>(kLook.count()));
    take(out_.read, said_);
    take(err_.read, errors_);
    if (!noticed && unnoticed.passed()) tell("is being started");
    noticed = noticed || unnoticed.passed();
  }
  take(out_.read, said_);
  const std::string first = said_.substr(0, said_.find('\n'));
  said_.erase(0, first.size() + 1);
  if (first == "ready") return;
  const bool ended = child_->ended();
  take(err_.read, errors_);
  child_->signal(SIGKILL);
  const std::string how = !first.empty()
                              ? fmt::format("expected \"ready\" as its first line, found \"{}\"", first.substr(0, 200))
                          : ended ? fmt::format("it has ended with code {}", child_->wait().shell_code())
                                  : "it was not ready within a minute";
  throw usage_error(fmt::format("--report_to {}: {}{}", program_.text, how, last_lines(errors_)),
                    "mend it, or --report_to tensorboard (or none)");
}

void LoggerSink::on(const Event& event) {
  if (!child_) return;
  if (const auto* run = std::get_if<RunStarted>(&event)) begin(*run);
  const CurvePoints points = curve_points(event);
  if (!points.values.empty()) {
    Json values = Json::object();
    for (const auto& [tag, value] : points.values) values[tag] = value;
    say({{"event", "points"}, {"step", points.step}, {"values", std::move(values)}});
  }
  if (const auto* run = std::get_if<RunEnded>(&event)) end(*run);
}

void LoggerSink::begin(const RunStarted& run) {
  Json settings = Json::object();
  for (const auto& [name, value] : options_.settings) settings[name] = value;
  say({{"event", "begin"},
       {"name", options_.name.empty() ? std::filesystem::path(run.output_dir).filename().string() : options_.name},
       {"project", options_.project},
       {"dir", run.output_dir},
       {"start_step", run.start_step},
       {"settings", std::move(settings)},
       {"args", run.args_json.empty() ? Json::object() : parse_json(run.args_json, "args")}});
}

void LoggerSink::end(const RunEnded& run) {
  say({{"event", "end"}, {"outcome", run.outcome}, {"exit_code", run.exit_code}});
  const bool failed = run.exit_code != 0 && run.exit_code != static_cast<int>(ExitCode::kInterrupted);
  const Deadline deadline(failed ? Clock::duration(kToEndOfFailure) : Clock::duration(kToEnd));
  const Deadline unnoticed(kNoticed);
  bool noticed = false;
  while (child_ && !child_->ended() && !deadline.passed()) {
    push();
    if (backlog_.empty()) in_.write.close();
    hear();
    if (!noticed && unnoticed.passed()) tell("is sending what it has; it has a minute for it");
    noticed = noticed || unnoticed.passed();
    ::poll(nullptr, 0, static_cast<int>(kLook.count()));
  }
  if (!child_) return;
  hear();
  if (!child_->ended()) {
    child_->signal(SIGKILL);
    drop("has not come to its end in time and was ended; logging.jsonl holds all");
  } else if (const int code = child_->wait().shell_code(); code != 0) {
    drop(fmt::format("has ended with code {}; logging.jsonl holds all{}", code, last_lines(errors_)));
  }
  child_.reset();
}

void LoggerSink::say(const Json& line) {
  if (!child_) return;
  backlog_ += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  push();
  hear();
  if (!child_) return;
  if (child_->ended()) {
    hear();
    const int code = child_->wait().shell_code();
    drop(fmt::format("has ended with code {} while the run goes on; logging.jsonl holds all{}", code,
                     last_lines(errors_)));
  } else if (backlog_.size() > kMostWaiting) {
    child_->signal(SIGKILL);
    drop("takes nothing any more and was ended; logging.jsonl holds all");
  }
}

/// As much of the backlog as its input takes at once.
void LoggerSink::push() {
  while (!backlog_.empty() && in_.write.is_open()) {
    const ssize_t written = ::write(in_.write.get(), backlog_.data(), backlog_.size());
    if (written > 0) {
      backlog_.erase(0, static_cast<size_t>(written));
    } else if (written < 0 && errno == EINTR) {
      continue;
    } else {
      if (errno != EAGAIN) backlog_.clear();  // it reads no more: its end says why
      return;
    }
  }
}

void LoggerSink::hear() {
  take(err_.read, errors_);
  if (errors_.size() > 2 * kErrorsKept) errors_.erase(0, errors_.size() - kErrorsKept);
  take(out_.read, said_);
  for (size_t end = said_.find('\n'); end != std::string::npos; end = said_.find('\n')) {
    const std::string line = said_.substr(0, std::min(end, kLongestLine));
    said_.erase(0, end + 1);
    if (!line.empty()) bus_.emit(Notice{line});
  }
  if (said_.size() > kLongestLine) said_.clear();  // no line for people
}

void LoggerSink::drop(const std::string& why) {
  child_.reset();
  tell(why);
}

void LoggerSink::tell(const std::string& text) const {
  bus_.emit(Notice{fmt::format("--report_to {} {}", program_.text, text)});
}

}  // namespace lockstep
