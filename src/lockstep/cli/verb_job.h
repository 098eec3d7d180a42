// A verb that runs on ranks: it starts them, or is one of them.
//
// Example:
//   if (const auto code = launch_verb("eval", args, options.run, host)) return *code;   // this was the launcher
//   Job job = start_verb("eval", options.run, host);
//   Console console(std::cerr, job, host);
//   const Evaluation found = evaluate(job, options, console.events());
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/cli/host.h"
#include "lockstep/session/job.h"
#include "lockstep/session/launch.h"
#include "lockstep/watch/console_sink.h"

namespace lockstep {

/// This verb again, once for each rank.
LaunchRequest launch_request(const std::string& verb, const std::vector<std::string>& args, const Host& host);
std::optional<int> launch_verb(const std::string& verb, const std::vector<std::string>& args, const RunOptions& run,
                               const Host& host);

JobOptions job_options(const std::string& verb, const Host& host);
Job start_verb(const std::string& verb, const RunOptions& run, const Host& host);

/// What a task tells while it runs, on the rank that reports: to `out`, which is std::cout or std::cerr. What a batch
/// size was tried with goes to standard error in any case. Where a program has started this one, to that program alone.
class Console final : public EventSink {
 public:
  Console(std::ostream& out, const Job& job, const Host& host);
  void on(const Event& event) override;
  const EventBus& events() const { return events_; }  // also to a program that has started this one, in place of people
  /// Notices, by the reporting rank.
  void tell(const std::vector<std::string>& notices);
  /// Work that stands in files goes on, and says so once, when what it prints is taken no more. Else that is an error at
  /// the end.
  void outlive_reader() { outlives_reader_ = true; }

 private:
  std::ostream& stream_;
  bool outlives_reader_ = false;
  ConsoleSink out_, err_;
  std::shared_ptr<EventLines> lines_;
  EventBus events_;
};

/// What the verb was started for, to a program that has started it; false: to people, by the caller.
bool tell_result(const Host& host, const Job& job, const Json& result);

/// The table of it, where there is one. Collective.
void print_communication(Job& job, const RunOptions& run, std::ostream& out);

}  // namespace lockstep
