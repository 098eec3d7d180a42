// Everything that a run says, for a program that has started it: one JSON object a line, to a descriptor. A Python that calls
// lockstep.sft, and whoever else starts the program with LOCKSTEP_EVENTS=FD, gets this and nothing on the terminal.
//
//   {"event": "step", "step": 3, "max_steps": 100, "loss": 2.41, …, "text": "step   3/100 …"}     an event; `text`: its lines as
//                                                                    the terminal would have them, if any
//   {"event": "result", "result": {…}}                               what the verb was started for
//   {"event": "error", "code": 3, "message": "…", "hint": "…", "frames": ["…"]}
//
// Example:
//   EventLines lines(fd);
//   bus.add(lines);
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/base/failure.h"
#include "lockstep/base/json.h"
#include "lockstep/watch/console_sink.h"

namespace lockstep {

/// Without `text`.
Json event_json(const Event& event);
/// Rows with the answers that were given to them: a list of prompt, expected, predicted, image, exact.
Json samples_json(const std::vector<SamplePrediction>& samples);

class EventLines final : public EventSink {
 public:
  /// Borrows the descriptor, which is open for writing.
  explicit EventLines(int fd);

  void on(const Event& event) override;
  void result(const Json& value);
  /// Texts are cut in the middle at `most` bytes: ranks write to one pipe, which takes some 4000 as a whole.
  void error(const Failure& failure, const std::vector<std::string>& frames = {}, size_t most = 3000);
  /// Programs that this one starts get neither the descriptor nor the word of it. Before there are other threads that read the
  /// environment.
  void keep_to_self() const;

 private:
  void write(const Json& line);

  int fd_;
  bool taken_ = true;  // whether there is still somebody who reads
  std::ostringstream text_;
  ConsoleSink console_;
};

}  // namespace lockstep
