// What a person sees in the terminal: one line a logging step, evaluations, checkpoints, notices, the end.
//
// On a terminal a phase's progress updates one line in place; in a pipe no control character is ever written and
// progress appears at steps of 10 %, at most every 2 s.
//
// Example:
//   ConsoleSink console(std::cout, console_options(env, STDOUT_FILENO, flags.quiet));
//   bus.add(console);
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

#include "lockstep/base/event.h"

namespace lockstep {

class Env;

struct ConsoleOptions {
  bool tty = false;
  int width = 80;  // columns; used on a terminal only
  bool color = false;
  bool quiet = false;             // only notices, evaluations and the end
  std::function<double()> now{};  // seconds; empty: the steady clock
};

/// What the stream behind `fd` can show: a terminal or not, its width, colours unless NO_COLOR is set or TERM is dumb.
ConsoleOptions console_options(const Env& env, int fd, bool quiet);

class ConsoleSink final : public EventSink {
 public:
  ConsoleSink(std::ostream& out, ConsoleOptions options);
  void on(const Event& event) override;

 private:
  void show(const RunStarted& run);
  void show(const StepDone& step);
  void show(const MemoryMeasured& memory);
  void show(const EvalDone& eval);
  void show(const CheckpointSaved& saved);
  void show(const Notice& notice);
  void show(const Progress& progress);
  void show(const BatchSized& batch);
  void show(const RowsKept& rows);
  void show(const RunEnded& run);
  void redraw(const std::string& text, bool closes);
  void line(std::string_view text, std::string_view style = {});

  std::ostream& out_;
  ConsoleOptions options_;
  bool drawing_ = false;  // an unfinished progress line stands at the cursor
  std::string phase_;
  int64_t tenth_ = 0;
  double phase_start_ = 0, last_progress_ = 0;
};

}  // namespace lockstep
