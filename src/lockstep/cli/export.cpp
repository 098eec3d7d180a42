// lockstep export: an adapter put into its model.
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/quant_flags.h"
#include "lockstep/cli/run_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/session/adapter_base.h"
#include "lockstep/tasks/copy_model.h"
#include "lockstep/tasks/merge_adapter.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/tasks/quantise_model.h"
#include "lockstep/tasks/run_folder.h"

namespace lockstep {

const char* const export_summary =
    "put an adapter into its model, make a model's matrices codes of few bits, or write a model alone: a new folder";

namespace {

auto told_each_two_seconds(const char* done_what) {
  return [done_what, told = Clock::now()](int64_t done, int64_t all) mutable {
    if (seconds_since(told) < 2) return;
    told = Clock::now();
    std::cerr << fmt::format("{} {} of {}\n", done_what, format_bytes(done), format_bytes(all));
  };
}

void tell_large(const std::string& words) {
  if (!words.empty()) std::cerr << "note: " << words << "\n";
}

std::string next_command(const std::filesystem::path& folder) {
  return shell_command({"lockstep", "infer", "--model", folder.string()});
}

int export_codes(const MergeOptions& given, const QuantOptions& quant, const std::string& compute) {
  if (given.model.folder.empty() || given.output.empty()) {
    throw usage_error("--model and --output_dir are required where codes are exported",
                      "lockstep export --model DIR --quant_method bnb --quant_bits 4 --output_dir OUT");
  }
  require_folder_place("--output_dir", given.output);
  QuantiseOptions options{.model = given.model,
                          .output = given.output,
                          .verify = given.verify,
                          .quant = quant,
                          .max_shard_bytes = given.max_shard_bytes,
                          .progress = told_each_two_seconds("written")};
  if (!compute.empty()) options.compute = dtype_from_flag(compute);
  const QuantisedModel made = quantise_model(options);
  tell_large(made.large);
  std::cout << fmt::format("{}: {} matrices are codes, {} of {}\n  next: {}\n", given.output.string(), made.matrices,
                           format_bytes(made.bytes), format_bytes(made.bytes_before), next_command(given.output));
  return 0;
}

/// LLaMA-Factory's export of what was trained whole: nothing that a run keeps for itself.
int export_whole(const MergeOptions& given) {
  if (given.model.folder.empty() || given.output.empty()) {
    throw usage_error("--adapters, --quant_bits, or --model with --output_dir is required: nothing is to be exported",
                      "lockstep export --help");
  }
  require_folder_place("--output_dir", given.output);
  const Copied made = copy_model({.model = given.model,
                                  .output = given.output,
                                  .verify = given.verify,
                                  .max_shard_bytes = given.max_shard_bytes,
                                  .progress = told_each_two_seconds("written")});
  tell_large(made.large);
  const size_t tokens = given.model.new_tokens.size();
  std::cout << fmt::format(
      "{}: {} tensors, {}, {}\n  next: {}\n", given.output.string(), made.tensors, format_bytes(made.bytes),
      tokens == 0 ? "as they were" : fmt::format("with {} special tokens", tokens), next_command(given.output));
  return 0;
}

}  // namespace

int run_export(const Words& args, const Host& /*host*/) {
  MergeOptions options;
  QuantFlags quant;
  bool merge = true;
  CLI::App app(export_summary, "lockstep export");
  app.footer(
      "Examples:\n  lockstep export --adapters output/v0-1/checkpoint-20 --merge_lora true\n"
      "  lockstep export --model DIR --quant_method bnb --quant_bits 4 --output_dir DIR-int4\n"
      "  lockstep export --model output/v0-1/checkpoint-20 --output_dir released");
  app.add_option("--adapters", options.adapter, "folder of the adapter")->group("Model");
  app.add_option("--model,--model_id_or_path", options.model.folder,
                 "folder of its base (default: what the adapter says)")
      ->group("Model");
  add_joint_flags(app, options.model.vision_tower, options.model.joint);
  std::vector<std::string> new_special_tokens;
  add_new_token_flag(app, new_special_tokens);
  app.add_option("--merge_lora", merge, "what is done with an adapter")->capture_default_str()->group("Output");
  app.add_option("--output_dir,--export_dir", options.output, "default: <adapter>-merged")->group("Output");
  add_shard_size_flag(app, "Output", options.max_shard_bytes);
  app.add_option("--verify", options.verify,
                 "compare what is read with the hashes of lockstep_manifest.json, where there is one")
      ->capture_default_str()
      ->group("Model");
  add_quant_flags(app, quant);
  OtherStacks others{.verb = "export", .notices = {}};
  if (!parse_flags(app, args, {"adapters", "model", "merge_lora", "output_dir", "quant_bits"}, &others)) return 0;
  for (const auto& text : others.notices) std::cerr << "note: " << text << "\n";
  options.model.new_tokens = new_tokens_from(new_special_tokens);
  const QuantOptions codes = quant.options(quant.compute_dtype);
  if (options.adapter.empty() && merge && app.count("--merge_lora") > 0)
    throw usage_error("--merge_lora true: there is no adapter to merge", "--adapters DIR");
  if (options.adapter.empty() && codes.asked()) return export_codes(options, codes, quant.compute_dtype);
  if (options.adapter.empty()) return export_whole(options);
  if (codes.asked()) {
    throw usage_error("--quant_bits beside --adapters: an adapter is put into values, not into codes",
                      "merge first, then export the merged folder with --quant_bits");
  }
  if (!merge) throw usage_error("--merge_lora false: nothing is left to export", "--merge_lora true");
  options.model = completed(options.model, options.adapter);
  if (options.output.empty()) {
    const auto adapter = std::filesystem::absolute(options.adapter / "").lexically_normal();  // "." too
    options.output = adapter.parent_path().string() + "-merged";
  }
  require_folder_place("--output_dir", options.output);
  options.progress = told_each_two_seconds("merged");
  const Merged merged = merge_adapter(options);
  tell_large(merged.large);
  std::cout << fmt::format("{}: {} of {} tensors changed{}\n  next: {}\n", options.output.string(), merged.changed,
                           merged.tensors, merged.untied ? ", the head has weights of its own now" : "",
                           next_command(options.output));
  return 0;
}

}  // namespace lockstep
