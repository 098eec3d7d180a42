// The curves of a run, given to a program that feeds a tracker of experiments: one that the program carries (wandb, swanlab,
// mlflow) or one of a person's own. On its standard input it gets one JSON object a line:
//
//   {"event": "begin", "name": "…", "project": "…", "dir": "output/v0-…", "start_step": 0, "settings": {…}, "args": {…}}
//   {"event": "points", "step": 5, "values": {"train/loss": 2.41, "train/epoch": 0.1}}       null: it is no number
//   {"event": "end", "outcome": "done", "exit_code": 0}                                      none: the run was cut short
//
// On its standard output it says "ready" before it has read anything, and then what people should know. It never holds up the run: what it
// does not take waits in memory, and when it ends or takes nothing at all, the run goes on and says so once.
//
// Example:
//   LoggerSink logger(logger_program("wandb", env.text("PATH").value_or("")), options, bus);
//   bus.add(logger);
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/base/event.h"
#include "lockstep/base/json.h"
#include "lockstep/base/program.h"
#include "lockstep/watch/logger_options.h"

namespace lockstep {

/// What --report_to names: a tracker, or a program of one's own. Throws UserError(kUsage): see find_program; no Python.
Program logger_program(const std::string& name, const std::string& search_path);

class LoggerSink final : public EventSink {
 public:
  /// Starts the program, and waits until it is ready. Throws UserError(kUsage) with its last words: it has ended (a package
  /// is missing), or is not ready in time. Notices go to `bus`.
  LoggerSink(Program program, LoggerOptions options, const EventBus& bus);
  ~LoggerSink() override;
  LoggerSink(const LoggerSink&) = delete;
  LoggerSink& operator=(const LoggerSink&) = delete;

  /// RunEnded waits for the program's own end, for a minute at most; a few seconds where the run has failed.
  void on(const Event& event) override;

 private:
  void await_ready();
  void begin(const RunStarted& run);
  void end(const RunEnded& run);
  void say(const Json& line);
  void push();
  void hear();
  void drop(const std::string& why);
  void tell(const std::string& text) const;

  Program program_;
  LoggerOptions options_;
  const EventBus& bus_;
  Pipe in_, out_, err_;
  std::optional<Child> child_;  // none: it has ended, or was given up
  std::string backlog_;         // that it has not taken yet
  std::string said_, errors_;   // an unfinished line; the end of its standard error
};

}  // namespace lockstep
