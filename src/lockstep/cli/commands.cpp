#include "lockstep/cli/commands.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <map>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/interrupted.h"
#include "lockstep/base/process.h"
#include "lockstep/base/version.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/dialect/accelerate.h"
#include "lockstep/dialect/given_words.h"
#include "lockstep/dialect/translate.h"
#include "lockstep/guard/settings.h"
#include "lockstep/session/rank_main.h"
#include "lockstep/tasks/config_file.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  int (*run)(const Words& args, const Host& host);
};

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> table = {
      {"sft", sft_summary, run_sft},
      {"pt", pt_summary, run_pt},
      {"eval", eval_summary, run_eval},
      {"infer", infer_summary, run_infer},
      {"plan", plan_summary, run_plan},
      {"init", init_summary, run_init},
      {"inspect", inspect_summary, run_inspect},
      {"verify", verify_summary, run_verify},
      {"demo", demo_summary, run_demo},
      {"embed", embed_summary, run_embed},
      {"report", report_summary, run_report},
      {"doctor", doctor_summary, run_doctor},
      {"export", export_summary, run_export},
      {"migrate", migrate_summary, run_migrate},
  };
  return table;
}

void print_help() {
  std::cout << "lockstep: fine-tune, evaluate and ask multimodal language models on one or many ranks\n\n"
               "Usage: lockstep VERB [FLAGS]      lockstep VERB --help lists a verb's flags\n\nVerbs:\n";
  for (const auto& verb : verbs()) std::cout << fmt::format("  {:<8} {}\n", verb.name, verb.summary);
  std::cout << "\n--version prints the version. Exit codes: 0 ok, 2 usage, 3 data, 4 checkpoint, 5 out of memory,\n"
               "6 communication, 7 numbers that are not finite, 130 interrupted.\n";
}

/// Verbs with a second name.
std::string canonical(const std::string& word) {
  return word == "train" ? "sft" : word == "merge-lora" ? "export" : word;
}

/// What other tools call our verbs; "": nothing near.
std::string meant_verb(std::string word, const std::vector<std::string>& names) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  static const std::map<std::string, std::string> others = {
      {"finetune", "sft"},  {"fine-tune", "sft"}, {"fine_tune", "sft"}, {"chat", "infer"},    {"generate", "infer"},
      {"predict", "infer"}, {"run", "infer"},     {"test", "eval"},     {"evaluate", "eval"}, {"encode", "embed"},
      {"info", "inspect"},  {"show", "inspect"},  {"check", "doctor"},  {"new", "init"},      {"estimate", "plan"}};
  const auto other = others.find(word);
  return other != others.end() ? other->second : nearest_name(word, names);
}

/// Verbs of other stacks that have none of ours; "": it is none of them.
std::string instead_of(const std::string& verb) {
  static const std::map<std::string, std::string> others = {
      {"rlhf", "rewards and preferences are not trained here; `lockstep sft` trains on the answers that are wanted"},
      {"deploy",
       "there is no server here; `lockstep infer` answers files and chats, `lockstep export` merges for a server"},
      {"api",
       "there is no server here; `lockstep infer` answers files and chats, `lockstep export` merges for a server"},
      {"rollout", "it belongs to training by rewards, which is not built; `lockstep infer` answers files of prompts"},
      {"sample", "`lockstep infer --temperature 1 --val_dataset FILE` draws answers"},
      {"app", "there is no page to chat in here; `lockstep infer` chats in the terminal"},
      {"webchat", "there is no page to chat in here; `lockstep infer` chats in the terminal"},
      {"web-ui", "there is no page to train from here; `lockstep sft FILE.yaml` takes a file of flags"},
      {"webui", "there is no page to train from here; `lockstep sft FILE.yaml` takes a file of flags"},
      {"megatron", "parts of a layer are not divided here; `lockstep sft --deepspeed zero3` shards all of it"}};
  const auto at = others.find(verb);
  return at == others.end() ? "" : at->second;
}

const Verb& find_verb(const std::string& word) {
  const std::string name = canonical(word);
  std::vector<std::string> names = {"train"};
  for (const auto& verb : verbs()) {
    if (name == verb.name) return verb;
    names.emplace_back(verb.name);
  }
  if (const std::string instead = instead_of(word); !instead.empty()) {
    throw usage_error(fmt::format("{}: is not built", word), instead);
  }
  const auto near = meant_verb(word, names);
  throw usage_error(fmt::format("unknown verb \"{}\"", word),
                    near.empty() ? "lockstep --help lists the verbs" : "did you mean " + near + "?");
}

/// Variables that a file of flags brings, for those that are not set.
Env with_defaults(const Env& env, std::map<std::string, std::string> variables) {
  std::map<std::string, std::string> all = env.all();
  all.merge(variables);
  return Env(std::move(all));
}

/// For a diagnosis: it tells ranks apart that were started otherwise, and names the flag to change.
void tell_command(const std::string& verb, const Words& args, Recorder& recorder) {
  recorder.add_fact("command", verb);
  std::string name, value;
  const auto tell = [&] {
    if (!name.empty()) recorder.add_setting(name, value);
  };
  for (const auto& word : args) {
    if (!word.starts_with("--")) {
      value += (value.empty() ? "" : " ") + shell_word(word);
      continue;
    }
    tell();
    const size_t equals = word.find('=');
    name = word.substr(0, equals);
    value = equals == std::string::npos ? "" : shell_word(word.substr(equals + 1));
  }
  tell();
}

bool takes_other_stacks(const std::string& verb) {
  return verb == "sft" || verb == "pt" || verb == "eval" || verb == "infer" || verb == "plan";
}

/// Verbs that keep nothing for a run that goes on, and have no children that speak for them.
bool ends_at_once(const std::string& verb) { return verb != "sft" && verb != "pt" && verb != "demo"; }

int run_verb(const Verb& verb, const Words& args, const Host& host) {
  if (verb.name == std::string_view("migrate")) return verb.run(args, host);  // its file is what it is about
  Expanded expanded = expand_config_file(args);
  const Host with_file{.env = with_defaults(host.env, std::move(expanded.variables)),
                       .executable = host.executable,
                       .recorder = host.recorder,
                       .lines = host.lines};
  const std::string accelerate = accelerate_launch_settings(host.env);
  if (!accelerate.empty() && takes_other_stacks(verb.name) && !is_given(expanded.args, "accelerate_config")) {
    expanded.args.insert(expanded.args.end(), {"--accelerate_config", accelerate});
  }
  tell_command(verb.name, expanded.args, *host.recorder);
  if (!expanded.staged) return find_verb(verb_meant(verb.name, expanded.args)).run(expanded.args, with_file);
  if (verb.name == std::string_view("sft")) return run_staged_sft(*expanded.staged, args, with_file);
  throw usage_error(fmt::format("{}: stages are for lockstep sft", expanded.staged->file),
                    std::string("give the flags of one stage to ") + verb.name);
}

int run_words(const Words& words, const Host& host) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    if (words.size() > 1 && words[1] != "all") return find_verb(words[1]).run({"--help"}, host);
    print_help();
    return words.empty() ? static_cast<int>(ExitCode::kUsage) : 0;
  }
  if (words[0] == "--version" || words[0] == "-v" || words[0] == "-V" || words[0] == "version") {
    std::cout << "lockstep " << kVersion << "\n";
    return 0;
  }
  Words args(words.begin() + 1, words.end());
  if (words[0] == "merge-lora" && !is_given(args, "merge_lora")) args.insert(args.end(), {"--merge_lora", "true"});
  if (words[0] == "agent") return run_agent(args, host);  // started by ranks
  const Verb& verb = find_verb(words[0]);
  if (ends_at_once(verb.name) && !host.env.has("RANK")) end_when_interrupted(std::string("lockstep ") + verb.name);
  return run_verb(verb, args, host);
}

/// To the program that has started this one and says so; null: there is none.
std::shared_ptr<EventLines> lines_of(const Env& env) {
  const auto fd = env.integer("LOCKSTEP_EVENTS");
  if (!fd) return nullptr;
  if (std::in_range<int>(*fd) && ::fcntl(static_cast<int>(*fd), F_GETFD) >= 0) {
    return std::make_shared<EventLines>(static_cast<int>(*fd));
  }
  throw usage_error(fmt::format("LOCKSTEP_EVENTS={}: expected the number of a descriptor that is open", *fd));
}

/// How messages begin: "lockstep sft", or "lockstep" while no verb is known.
std::string program_of(const Words& words) {
  for (const auto& verb : verbs()) {
    if (!words.empty() && canonical(words[0]) == verb.name) return std::string("lockstep ") + verb.name;
  }
  return "lockstep";
}

}  // namespace

int run_command(const Words& words, const Host& started) {
  Host host = started;
  return rank_main(
      program_of(words), host.env, *host.recorder,
      [&] {
        host.lines = lines_of(host.env);
        return run_words(words, host);
      },
      [&](const Failure& failure, const std::exception& error) {
        if (!host.lines) return false;
        const auto* known = dynamic_cast<const Error*>(&error);
        const Failure told{failure.code, known != nullptr ? known->message() : failure.message, failure.hint,
                           failure.shared};
        host.lines->error(told, known != nullptr ? known->frames() : std::vector<std::string>());
        return true;
      });
}

int run_program(const Words& words) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes is a failed write, told as such; training goes on without it
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that a limit (ulimit -f) does not let grow
  std::optional<Host> host;
  try {
    host.emplace(Host{.env = Env::process(), .executable = own_executable()});
  } catch (const Error& error) {  // there is no memory for the roll call, through which errors are told
    std::cerr << "lockstep: error: " << error.what() << "\n";
    return static_cast<int>(error.code());
  }
  (void)DeviceMemory::host();  // sets LibTorch's environment: later, other threads may be reading it
  int code = run_command(words, *host);
  if (!std::cout.flush() && code == 0) {
    std::cerr << "lockstep: error: standard output took not all that was to be printed\n"
                 "  hint: is the disk full, or has its reader gone?\n";
    code = static_cast<int>(ExitCode::kData);
  }
  std::cerr.flush();
  std::fflush(nullptr);
  return code;
}

}  // namespace lockstep
