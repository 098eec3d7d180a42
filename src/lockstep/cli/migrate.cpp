// lockstep migrate: a script or a file of flags of another stack as one YAML for lockstep, with what was understood.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/train_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/dialect/given_words.h"
#include "lockstep/dialect/shell_script.h"
#include "lockstep/dialect/stack_command.h"
#include "lockstep/dialect/translate.h"
#include "lockstep/tasks/config_file.h"

namespace lockstep {

const char* const migrate_summary = "write a script or file of another stack as one YAML for lockstep";

namespace {

/// What a YAML scalar needs quotes for.
std::string yaml_scalar(const std::string& text) {
  const bool plain = !text.empty() && text.find_first_of(":#{}[]&*!|>'\"%@`,\n") == std::string::npos &&
                     text.front() != ' ' && text.back() != ' ' && text.front() != '-' && text.front() != '?';
  return plain ? text : Json(text).dump();
}

std::string yaml_value(const std::vector<std::string>& values) {
  if (values.empty()) return "true";
  if (values.size() == 1) return yaml_scalar(values[0]);
  std::string list;
  for (const auto& value : values) list += (list.empty() ? "[" : ", ") + yaml_scalar(value);
  return list + "]";
}

bool knows(const std::string& verb, const std::string& name) {
  if (verb != "sft" && verb != "pt" && verb != "plan") return true;
  static SftFlags flags;
  static CLI::App app;
  static const bool added = (SftParser(flags).add_to(app, SftParser::Verb::kSft), true);
  return added && app.get_option_no_throw("--" + name) != nullptr;
}

/// A key stands in a file once: what is said in several words becomes one list.
std::vector<GivenFlag> one_of_each(const std::vector<GivenFlag>& flags) {
  std::vector<GivenFlag> out;
  for (const auto& flag : flags) {
    const auto same = std::ranges::find(out, flag.name, &GivenFlag::name);
    if (same == out.end()) {
      out.push_back(flag);
    } else {
      same->values.insert(same->values.end(), flag.values.begin(), flag.values.end());
    }
  }
  return out;
}

void print(const StackCommand& command) {
  const Expanded expanded = expand_config_file(command.args);
  std::map<std::string, std::string> environment = command.environment;
  environment.insert(expanded.variables.begin(), expanded.variables.end());
  const std::string verb = verb_meant(command.verb, expanded.args);
  const Translation found = translate(verb, expanded.args, [&](const std::string& name) { return knows(verb, name); });
  std::cout << fmt::format("# of {}; start it: lockstep {} FILE.yaml\n", stack_name(found.stack), verb);
  for (const auto& one : found.understood) {
    if (one.meaning.empty()) std::cout << "# " << one.text() << "\n";
  }
  for (const auto& flag : command.untaken) {
    std::cout << fmt::format("# {}: of the launcher, and nothing is made of it\n", flag);
  }
  if (!environment.empty()) std::cout << "ENV:\n";
  for (const auto& [name, value] : environment) std::cout << fmt::format("  {}: {}\n", name, yaml_scalar(value));
  for (const auto& flag : one_of_each(given_words(found.words).flags)) {
    std::string why = knows(verb, flag.name) ? "" : "  # lockstep has no such flag";
    for (const auto& one : found.understood) {
      if (one.meaning == flag.text()) why = one.given.empty() ? "  # " + one.why : "  # " + one.given;
    }
    std::cout << fmt::format("{}: {}{}\n", flag.name, yaml_value(flag.values), why);
  }
}

}  // namespace

int run_migrate(const Words& args, const Host& /*host*/) {
  std::string file;
  CLI::App app(migrate_summary, "lockstep migrate");
  app.footer(
      "Examples:\n  lockstep migrate sft.sh > sft.yaml && lockstep sft sft.yaml\n  lockstep migrate "
      "qwen2vl_lora_sft.yaml\n\n"
      "Nothing of the script is run.");
  app.add_option(
         "FILE", file,
         "a shell script with one command of ms-swift, LLaMA-Factory, LLaVA or MiniCPM-V, or a YAML or JSON of flags")
      ->required();
  if (!parse_flags(app, args)) return 0;
  if (file.ends_with(".yaml") || file.ends_with(".yml") || file.ends_with(".json")) {
    if (expand_config_file({file}).staged) {
      throw usage_error(fmt::format("{}: stages are lockstep's own: there is nothing to migrate", file),
                        "lockstep sft " + file + " starts them");
    }
    print({.verb = "sft", .args = {file}, .environment = {}, .untaken = {}});
    return 0;
  }
  if (!std::filesystem::exists(file)) throw usage_error(fmt::format("{}: expected a script, found no such file", file));
  constexpr size_t kMostBytes = size_t{1} << 20;
  bool any = false;
  for (const auto& command : shell_commands(read_text(file, kMostBytes))) {
    const StackCommand found = stack_command(command);
    if (found.verb.empty()) continue;
    if (any) std::cout << "---\n";
    any = true;
    if (command.behind_branches) {
      std::cout << "# the script decides (if, case, a loop): of what it sets in several ways the last is taken here\n";
    }
    print(found);
  }
  if (!any) {
    throw usage_error(fmt::format("{}: no command of another stack was found", file),
                      "expected swift, llamafactory-cli, torchrun, deepspeed or accelerate launch with a script");
  }
  return 0;
}

}  // namespace lockstep
