// One run of a program: a file as its input, both its outputs read, a time limit. It cannot block its caller: the input
// lies in memory as a file, so nobody waits for a program that does not read it; outputs are polled.
//
// Example:
//   InputFile rows;
//   rows.write(jsonl);
//   ProgramRun run(program, rows, 600s);
//   while (!run.advance(1s)) show_progress(run.seconds());
//   if (run.result().exit_code != 0) …
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/base/process.h"
#include "lockstep/base/program.h"

namespace lockstep {

/// A file without a name. Throws Error(kInternal).
class InputFile {
 public:
  InputFile();

  void write(std::string_view bytes);
  /// A descriptor that begins at the first byte.
  Descriptor reopened() const;

 private:
  Descriptor fd_;
};

struct ProgramResult {
  int exit_code = 0, signal = 0;  // one of them; signal: it was killed by this one
  bool late = false;              // its time was up
  bool endless = false;           // its output was longer than anything sensible
  std::string output, errors;     // standard output; the last part of standard error
  double seconds = 0;
};

/// The program is a process group of its own, without what a launcher has put into the environment, and ends with the
/// thread that has started it. The destructor kills what still runs.
class ProgramRun {
 public:
  /// Throws UserError(kUsage) when the file cannot be executed (no #! line, no such interpreter).
  ProgramRun(const Program& program, const InputFile& input, Clock::duration patience);
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;

  /// Reads what the program says for at most this long; true when it has ended or was killed.
  bool advance(Clock::duration at_most);
  double seconds() const { return seconds_since(begun_); }
  const ProgramResult& result() const { return result_; }

 private:
  bool read_outputs(Clock::duration at_most);
  static void take(Descriptor& from, std::string& into);
  void look_for_end();

  Clock::time_point begun_ = Clock::now();
  Deadline deadline_;
  Pipe out_, err_;
  Child child_;
  bool ended_ = false;
  ProgramResult result_;
};

}  // namespace lockstep
