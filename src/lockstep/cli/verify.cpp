// lockstep verify: computes every case of an oracle folder again and says how far the results are apart.
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/verify/parts.h"

namespace lockstep {

const char* const verify_summary = "compute every case of an oracle folder and compare with what transformers gave";

int run_verify(const Words& args, const Host& /*host*/) {
  std::string dir, dtype = "fp32";
  bool as_json = false;
  CLI::App app(verify_summary, "lockstep verify");
  app.footer(
      "Example:\n  lockstep verify oracles/qwen2            one folder: checkpoint/ + reference.safetensors\n"
      "  lockstep verify oracles                  all folders below\n"
      "Exits with 0 only if everything compared holds; families not built are listed and never counted.");
  app.add_option("DIR", dir, "folder made by tests/oracles/make_oracles.py")->required();
  app.add_option("--dtype", dtype,
                 "compute dtype of the model cases: fp32 | bf16 | fp16 (with the tolerances of that dtype)")
      ->capture_default_str();
  app.add_flag("--json", as_json, "for programs");
  if (!parse_flags(app, args)) return 0;

  const Dtype compute = dtype_from_flag(dtype);
  VerifyReport report;
  verify_any(dir, compute, report);
  if (as_json) {
    std::cout << report.json().dump(2) << "\n";
  } else {
    std::cout << report.table() << report.summary() << "\n";
  }
  return static_cast<int>(report.holds() ? ExitCode::kOk : ExitCode::kNumerics);
}

}  // namespace lockstep
