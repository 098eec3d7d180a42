#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/guard/post_mortem.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/watch/post_mortem_page.h"
#include "lockstep/watch/post_mortem_text.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "post_mortem";

bool is_post_mortem(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "diagnosis.json", ignored);
}

/// The newest of a run's: post_mortem, post_mortem-2, …
fs::path post_mortem_of(const fs::path& run) {
  if (is_post_mortem(run)) return run;
  std::error_code ignored;
  fs::path newest, next = run / kFolder;
  for (int number = 2; fs::exists(next, ignored); ++number) {
    if (is_post_mortem(next)) newest = next;
    next = run / fmt::format("{}-{}", kFolder, number);
  }
  if (!newest.empty()) return newest;
  if (!fs::is_directory(run, ignored)) {
    throw data_error(
        fmt::format("{}: expected the folder of a run, found none", run.string()),
        "give the run's --output_dir, or --post-mortem and the folder that the job's last lines have named");
  }
  throw data_error(fmt::format("{}: expected a folder {} in it, found none", run.string(), kFolder),
                   "only a job that was ended writes one; the curves of the run are in its report.html");
}

}  // namespace

const char* const report_summary = "tell what ended a job, and draw the timeline of its ranks";

int run_report(const Words& args, const Host& /*host*/) {
  std::string run, folder, output;
  bool as_json = false;
  CLI::App app(report_summary, "lockstep report");
  app.footer(
      "Examples:\n  lockstep report --post-mortem output/run/post_mortem\n  lockstep report output/run\n"
      "Prints the diagnosis, a line per rank and the calls around the divergence; writes timeline.html.");
  app.add_option("RUN_DIR", run, "folder of a run: its newest post-mortem");
  app.add_option("--post-mortem,--post_mortem", folder, "the folder that the last lines of the job have named");
  app.add_option("--output", output, "where the page goes (default: timeline.html in the post-mortem's folder)");
  app.add_flag("--json", as_json, "for programs; the page is written only with --output");
  if (!parse_flags(app, args)) return 0;
  if (run.empty() == folder.empty()) {
    throw usage_error(run.empty() ? "neither --post-mortem nor the folder of a run was given"
                                  : "both --post-mortem and the folder of a run were given",
                      "lockstep report --post-mortem DIR");
  }
  if (!output.empty()) require_file_place("--output", output);
  const PostMortem found = read_post_mortem(folder.empty() ? post_mortem_of(run) : fs::path(folder));
  std::cout << (as_json ? post_mortem_json(found) + "\n" : shown_text(post_mortem_text(found))) << std::flush;
  if (as_json && output.empty()) return 0;
  const fs::path page = output.empty() ? found.folder / "timeline.html" : fs::path(output);
  try {
    write_text(page, render_post_mortem(found));
  } catch (const Error& error) {
    throw data_error(error.message(), "--output FILE writes the page elsewhere");
  }
  if (!as_json) std::cout << fmt::format("\ntimeline: {}\n", page.string());
  return 0;
}

}  // namespace lockstep
