// lockstep export: an adapter put into its model.
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/session/adapter_base.h"
#include "lockstep/tasks/merge_adapter.h"
#include "lockstep/tasks/run_folder.h"

namespace lockstep {

const char* const export_summary = "put an adapter into its model: a folder that whoever opens the model can open";

int run_export(const Words& args, const Host& /*host*/) {
  MergeOptions options;
  bool merge = true;
  CLI::App app(export_summary, "lockstep export");
  app.footer("Example:\n  lockstep export --adapters output/v0-1/checkpoint-20 --merge_lora true");
  app.add_option("--adapters", options.adapter, "folder of the adapter")->required()->group("Model");
  app.add_option("--model,--model_id_or_path", options.model, "folder of its base (default: what the adapter says)")
      ->group("Model");
  app.add_option("--vision_tower", options.vision_tower, "folder of the vision tower, where the model keeps none")
      ->group("Model");
  app.add_option("--merge_lora", merge, "the one thing that is exported so far")
      ->capture_default_str()
      ->group("Output");
  app.add_option("--output_dir,--export_dir", options.output, "default: <adapter>-merged")->group("Output");
  if (!parse_flags(app, args, {"adapters", "model", "merge_lora", "output_dir"})) return 0;
  if (!merge) throw usage_error("--merge_lora false: nothing is left to export", "--merge_lora true");
  if (options.model.empty()) options.model = base_of_adapter(options.adapter).model;
  if (options.output.empty()) {
    options.output = (options.adapter / "").parent_path().string() + "-merged";
  }
  auto told = Clock::now();
  options.progress = [&](int64_t done, int64_t all) {
    if (seconds_since(told) < 2) return;
    told = Clock::now();
    std::cerr << fmt::format("merged {} of {}\n", format_bytes(done), format_bytes(all));
  };
  const Merged merged = merge_adapter(options);
  std::cout << fmt::format("{}: {} of {} tensors changed{}\n  next: {}\n", options.output.string(), merged.changed,
                           merged.tensors, merged.untied ? ", the head has weights of its own now" : "",
                           shell_command({"lockstep", "infer", "--model", options.output.string()}));
  return 0;
}

}  // namespace lockstep
