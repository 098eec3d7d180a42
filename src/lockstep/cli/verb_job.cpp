#include "lockstep/cli/verb_job.h"

#include <iostream>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/process.h"
#include "lockstep/cli/commands.h"
#include "lockstep/doctor/machine_facts.h"
#include "lockstep/watch/communication_table.h"

namespace lockstep {
namespace {

int descriptor_of(const std::ostream& out) { return &out == &std::cout ? STDOUT_FILENO : STDERR_FILENO; }

}  // namespace

LaunchRequest launch_request(const std::string& verb, const std::vector<std::string>& args, const Host& host) {
  LaunchRequest request{.argv = {host.executable.string(), verb}, .program = "lockstep " + verb};
  request.argv.insert(request.argv.end(), args.begin(), args.end());
  request.run_here = [](const std::vector<std::string>& argv) { return run_program({argv.begin() + 1, argv.end()}); };
  request.with_too_few_gpus = verb == "doctor";
  request.notice = [lines = host.lines](const std::string& text) {
    lines ? lines->on(Notice{text}) : static_cast<void>(std::cout << text << "\n");
  };
  if (host.lines) {
    request.conclude = [lines = host.lines](int code, const std::string& text, bool again) {
      if (again) return lines->on(Notice{text});
      constexpr size_t kWholeDiagnosis = size_t{1} << 16;  // the ranks are gone: nobody else writes
      lines->error({static_cast<ExitCode>(code), text, "", true}, {}, kWholeDiagnosis);
    };
  }
  return request;
}

std::optional<int> launch_verb(const std::string& verb, const std::vector<std::string>& args, const RunOptions& run,
                               const Host& host) {
  std::cout.flush();
  return launch_if_asked(launch_request(verb, args, host), run, host.env);
}

JobOptions job_options(const std::string& verb, const Host& host) {
  return {
      .program = "lockstep " + verb, .recorder = host.recorder, .agent_command = {host.executable.string(), "agent"}};
}

Job start_verb(const std::string& verb, const RunOptions& run, const Host& host) {
  if (host.lines) host.lines->keep_to_self();
  // Before the ranks meet: then they have taken what there is.
  const World world = World::from_env(host.env);
  const CheckResult room = judge_shared_memory(shared_memory_facts(world, transport_name(run.transport)));
  Job job = start_job(run, host.env, job_options(verb, host));
  const std::string backend = job.data().backend_name();
  if (job.reports() && room.level != Level::kOk && (backend == "shm" || backend == "gloo")) {
    const std::string note = fmt::format("{}: {}; {}", room.name, room.text, room.cure);
    host.lines ? host.lines->on(Notice{note}) : static_cast<void>(std::cerr << "note: " << note << std::endl);
  }
  return job;
}

Console::Console(std::ostream& out, const Job& job, const Host& host)
    : stream_(out),
      out_(out, console_options(host.env, descriptor_of(out), /*quiet=*/false)),
      err_(std::cerr, console_options(host.env, STDERR_FILENO, /*quiet=*/false)),
      lines_(host.lines) {
  if (job.reports()) events_.add(*this);
}

void Console::tell(const std::vector<std::string>& notices) {
  for (const auto& text : notices) events_.emit(Notice{text});
}

void Console::on(const Event& event) {
  if (lines_) return lines_->on(event);
  ConsoleSink& sink = std::holds_alternative<BatchSized>(event) ? err_ : out_;
  sink.on(event);
  if (stream_.flush() || !outlives_reader_) return;
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  ::dup2(nowhere.get(), descriptor_of(stream_));
  stream_.clear();
  err_.on(
      Notice{"standard output takes no more (its reader has gone, or a disk is full): the run goes on without it; its "
             "log is in its folder"});
}

bool tell_result(const Host& host, const Job& job, const Json& result) {
  if (!host.lines) return false;
  if (job.reports()) host.lines->result(result);
  return true;
}

void print_communication(Job& job, const RunOptions& run, std::ostream& out) {
  const CommunicationFigures figures = communication_of(job, run.comm_figures);
  if (!job.reports()) return;
  for (const auto& line : communication_table(figures)) out << line << "\n";
}

}  // namespace lockstep
