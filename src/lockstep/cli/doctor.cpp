// lockstep doctor: what could stop or slow a job on these machines, with what repairs it.
#include <iostream>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/text_format.h"
#include "lockstep/cli/doctor_flags.h"
#include "lockstep/cli/verb_job.h"
#include "lockstep/cli/verbs.h"

namespace lockstep {
namespace {

Json as_json(const Examined& found) {
  Json checks = Json::array(), links = Json::array();
  for (const auto& result : found.report.results()) checks.push_back(as_json(result));
  for (const auto& link : found.links) links.push_back(as_json(link));
  return {{"checks", checks},
          {"links", links},
          {"ok", found.report.count(Level::kOk)},
          {"warnings", found.report.count(Level::kWarning)},
          {"failures", found.report.count(Level::kFailure)},
          {"exit_code", static_cast<int>(found.report.code())}};
}

}  // namespace

const char* const doctor_summary = "say what could stop or slow a job here, and what repairs it";

int run_doctor(const Words& args, const Host& host) {
  const auto flags = parse_doctor_flags(args);
  if (!flags) return 0;
  const ExamineOptions options = flags->options(host.env);
  if (const auto code = launch_verb("doctor", args, options.job.run, host)) return *code;
  if (World::from_env(host.env).rank == 0) {
    for (const auto& text : flags->notices) std::cerr << "note: " << text << "\n";
  }
  ConsoleSink console(std::cerr, console_options(host.env, STDERR_FILENO, /*quiet=*/false));
  ExamineSinks sinks{.result = {}, .progress = [&](const Progress& progress) { console.on(progress); }, .finished = {}};
  if (flags->json) {
    sinks.finished = [](const Examined& found) {
      std::cout << as_json(found).dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
    };
  } else {
    sinks.result = [](const CheckResult& result) { std::cout << shown_text(as_line(result)) << std::flush; };
    sinks.finished = [](const Examined& found) { std::cout << found.report.summary() << std::endl; };
  }
  return static_cast<int>(examine(options, host.env, job_options("doctor", host), sinks));
}

}  // namespace lockstep
