// lockstep plan: what a run would hold and do on each rank, from config.json and flags alone.
#include <iostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/plan_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/tasks/output_place.h"

namespace lockstep {

const char* const plan_summary =
    "say what each rank would hold and do, and what memory that needs, before any weight is loaded";

int run_plan(const Words& args, const Host& host) {
  const auto flags = parse_plan_flags(args);
  if (!flags) return 0;
  const auto note = [&](const std::string& text) {
    host.lines ? host.lines->on(Notice{text}) : static_cast<void>(std::cerr << "note: " << text << "\n");
  };
  for (const auto& text : flags->sft.notices) note(text);
  if (!flags->report.empty()) require_file_place("--report", flags->report);
  const JobPlan found = plan_job(flags->options(host.env), host.env);
  for (const auto& text : found.notices) note(text);
  if (host.lines) {
    host.lines->result(found.json());
  } else {
    std::cout << (flags->json ? found.json().dump(1, ' ', false, Json::error_handler_t::replace) + "\n"
                              : shown_text(found.text()));
  }
  if (!flags->report.empty()) write_text(flags->report, found.page());
  found.components.require();
  return 0;
}

}  // namespace lockstep
