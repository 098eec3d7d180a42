#include "lockstep/cli/commands.h"

#include <iostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/agent_verb.h"
#include "lockstep/cli/config_file.h"
#include "lockstep/cli/demo.h"
#include "lockstep/cli/doctor.h"
#include "lockstep/cli/embed.h"
#include "lockstep/cli/eval.h"
#include "lockstep/cli/failure.h"
#include "lockstep/cli/infer.h"
#include "lockstep/cli/init.h"
#include "lockstep/cli/inspect.h"
#include "lockstep/cli/plan_verb.h"
#include "lockstep/cli/report.h"
#include "lockstep/cli/sft.h"
#include "lockstep/cli/stages.h"
#include "lockstep/cli/verify.h"
#include "lockstep/cli/version.h"

namespace lockstep {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(const std::vector<std::string>& args, const Env& env);
};

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"sft", sft_summary, run_sft},          {"eval", eval_summary, run_eval},
      {"infer", infer_summary, run_infer},    {"plan", plan_summary, run_plan},
      {"init", init_summary, run_init},       {"inspect", inspect_summary, run_inspect},
      {"verify", verify_summary, run_verify}, {"demo", demo_summary, run_demo},
      {"embed", embed_summary, run_embed},    {"report", report_summary, run_report},
      {"doctor", doctor_summary, run_doctor},
  };
  return table;
}

void print_help() {
  std::cout << "lockstep: fine-tune, evaluate and ask multimodal language models on one or many ranks\n\n"
               "Usage: lockstep VERB [FLAGS]      lockstep VERB --help lists a verb's flags\n\nVerbs:\n";
  for (const auto& verb : verbs()) std::cout << fmt::format("  {:<8} {}\n", verb.name, verb.summary);
  std::cout << "\n--version prints the version. Exit codes: 0 ok, 2 usage, 3 data, 4 checkpoint, 5 out of memory,\n"
               "6 communication, 7 numbers that are not finite, 130 interrupted with a checkpoint saved.\n";
}

const Verb& find_verb(const std::string& word) {
  const std::string name = word == "train" ? "sft" : word;
  std::vector<std::string> names = {"train"};
  for (const auto& verb : verbs()) {
    if (name == verb.name) return verb;
    names.emplace_back(verb.name);
  }
  const auto near = nearest_name(word, names);
  throw usage_error(fmt::format("unknown verb \"{}\"", word),
                    near.empty() ? "lockstep --help lists the verbs" : "did you mean " + near + "?");
}

/// Variables that a file of flags brings, for those that are not set.
Env with_defaults(const Env& env, std::map<std::string, std::string> variables) {
  std::map<std::string, std::string> all = env.all();
  all.merge(variables);
  return Env(std::move(all));
}

/// The last comparison of the calls of all ranks: an error there is the result.
int closed_well(int code) {
  Recorder& recorder = *process_recorder();
  if (!recorder.watched()) return code;
  recorder.finish(code);
  return recorder.has_ending() ? static_cast<int>(recorder.board().ending.read_any().exit_code) : code;
}

}  // namespace

int run_command(const std::vector<std::string>& words, const Env& env) {
  std::string verb_name;
  try {
    if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
      print_help();
      return words.empty() ? static_cast<int>(ExitCode::kUsage) : 0;
    }
    if (words[0] == "--version") {
      std::cout << "lockstep " << kVersion << "\n";
      return 0;
    }
    if (words[0] == "agent") return run_agent({words.begin() + 1, words.end()}, env);  // started by ranks
    const Verb& verb = find_verb(words[0]);
    verb_name = verb.name;
    const std::vector<std::string> args(words.begin() + 1, words.end());
    Expanded expanded = expand_config_file(args);
    const Env all = with_defaults(env, std::move(expanded.variables));
    if (expanded.staged && verb_name != "sft") {
      throw usage_error(fmt::format("{}: stages are for lockstep sft", expanded.staged->file),
                        "give the flags of one stage to " + verb_name);
    }
    if (expanded.staged) return run_stages(*expanded.staged, args, all);
    return closed_well(verb.run(expanded.args, all));
  } catch (const std::exception& error) {
    return report_failure(verb_name, error, env);
  }
}

}  // namespace lockstep
