#include "lockstep/doctor/inspect.h"

#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/component_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/tasks/inspect_adapter.h"

namespace lockstep {
namespace {

/// A folder's name may be no UTF-8.
std::string printed(const Json& report) { return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace

const char* const inspect_summary = "say what a checkpoint folder holds and whether all of it can be used";

int run_inspect(const Words& args, const Host& host) {
  ModelPlace place;
  std::string dir;
  std::vector<std::string> no_build;
  bool as_json = false, verify = true;
  CLI::App app(inspect_summary, "lockstep inspect");
  app.footer(
      "Example:\n  lockstep inspect my-model\nReads headers only, and all bytes of "
      "weights that have hashes beside them, as lockstep saves them (--verify false leaves that out).");
  app.add_option("DIR", dir, "folder with config.json and weights, or of an adapter")->required();
  app.add_option("--model", place.folder, "of an adapter: the folder of its base (default: as the adapter says)");
  add_joint_flags(app, place.vision_tower, place.joint);
  app.add_option("--no_build", no_build, "components that would not be built (vision)")->expected(1);
  app.add_option("--verify", verify, "compare weights with the hashes of lockstep_manifest.json, where there is one")
      ->capture_default_str();
  app.add_flag("--json", as_json, "for programs");
  if (!parse_flags(app, args)) return 0;
  const auto told = [&](const Json& found) {  // its problems stand in it: a program looks for itself
    host.lines->result(found);
    return 0;
  };
  if (is_adapter_folder(dir)) {
    const Json report = inspect_adapter(dir, place, verify);
    if (host.lines) return told(report);
    std::cout << (as_json ? printed(report) : shown_text(adapter_text(report)));
    return static_cast<int>(report["problems"].empty() ? ExitCode::kOk : ExitCode::kCheckpoint);
  }
  if (!place.folder.empty()) {
    throw usage_error(fmt::format("--model names the base of an adapter, and {} holds none", dir),
                      "leave --model out, or name a folder with adapter_config.json");
  }
  Json report = inspect_checkpoint({dir, place.vision_tower, place.joint}, components_from("--no_build", no_build),
                                   host.env.flag("ENABLE_AUDIO_OUTPUT").value_or(true));
  if (verify && report.contains("files")) {
    std::vector<std::string> names;
    for (const auto& file : report["files"]) names.push_back(file["name"].get<std::string>());
    try {
      verify_files(dir, names);
    } catch (Error& e) {
      e.add_frame("hashes");
      report["problems"].push_back(e.what());
    }
  }
  if (host.lines) return told(report);
  std::cout << (as_json ? printed(report) : shown_text(inspect_text(report)));
  return static_cast<int>(report["problems"].empty() ? ExitCode::kOk : ExitCode::kCheckpoint);
}

}  // namespace lockstep
