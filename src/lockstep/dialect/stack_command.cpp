#include "lockstep/dialect/stack_command.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

std::string program_of(const std::string& word) { return std::filesystem::path(word).filename().string(); }

std::string verb_of(const std::string& word) {
  return word == "train" || word == "finetune" ? "sft"
         : word == "merge-lora"                ? "export"
         : word == "chat"                      ? "infer"
                                               : word;
}

/// A launcher's flag, and the variable that says the same.
struct LauncherFlag {
  std::string_view flag, variable;
};
constexpr std::array<LauncherFlag, 12> kLauncherFlags{{{"nproc_per_node", "NPROC_PER_NODE"},
                                                       {"num_gpus", "NPROC_PER_NODE"},
                                                       {"num_processes", "NPROC_PER_NODE"},
                                                       {"nnodes", "NNODES"},
                                                       {"num_nodes", "NNODES"},
                                                       {"num_machines", "NNODES"},
                                                       {"node_rank", "NODE_RANK"},
                                                       {"machine_rank", "NODE_RANK"},
                                                       {"master_addr", "MASTER_ADDR"},
                                                       {"main_process_ip", "MASTER_ADDR"},
                                                       {"master_port", "MASTER_PORT"},
                                                       {"main_process_port", "MASTER_PORT"}}};
/// Of these nothing is lost: ranks of one machine meet by themselves.
constexpr std::array<std::string_view, 5> kNeedless = {"standalone", "rdzv_backend", "rdzv_id", "multi_gpu", "module"};

/// What stands before the script or the module.
class LauncherWords {
 public:
  explicit LauncherWords(StackCommand& out) : out_(out) {}

  void read(const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (!words[i].starts_with("--")) continue;
      const size_t equals = words[i].find('=');
      std::string name = words[i].substr(2, equals == std::string::npos ? equals : equals - 2);
      std::ranges::replace(name, '-', '_');
      const bool behind = equals == std::string::npos && i + 1 < words.size() && !words[i + 1].starts_with("-");
      const std::string value = equals != std::string::npos ? words[i].substr(equals + 1) : behind ? words[i + 1] : "";
      take(name, value, words[i] + (behind ? " " + words[i + 1] : ""));
    }
    // accelerate counts the ranks of all machines.
    const auto nodes = out_.environment.find("NNODES");
    const int all = std::atoi(all_ranks_.c_str()),
              machines = nodes == out_.environment.end() ? 1 : std::atoi(nodes->second.c_str());
    if (all > 0 && machines > 1) out_.environment["NPROC_PER_NODE"] = std::to_string(all / machines);
  }

 private:
  void take(const std::string& name, const std::string& value, const std::string& spelled) {
    const auto* const known = std::ranges::find(kLauncherFlags, name, &LauncherFlag::flag);
    if (name == "num_processes") all_ranks_ = value;
    if (known != kLauncherFlags.end()) {
      if (known->variable != "NNODES" || value != "1") out_.environment[std::string(known->variable)] = value;
    } else if (name == "config_file") {
      out_.args.insert(out_.args.end(), {"--accelerate_config", value});
    } else if (name == "mixed_precision" && (value == "fp16" || value == "bf16")) {
      out_.args.insert(out_.args.end(), {"--" + value, "true"});
    } else if (name == "max_restarts") {
      if (value != "0") out_.args.insert(out_.args.end(), {"--max_restarts", value});
    } else if (const size_t colon = value.rfind(':'); name == "rdzv_endpoint" && colon != std::string::npos) {
      out_.environment["MASTER_ADDR"] = value.substr(0, colon);
      out_.environment["MASTER_PORT"] = value.substr(colon + 1);
    } else if (name == "include" && value.starts_with("localhost:")) {
      const std::string devices = value.substr(value.find(':') + 1);
      out_.environment["CUDA_VISIBLE_DEVICES"] = devices;
      out_.environment["NPROC_PER_NODE"] = std::to_string(1 + std::ranges::count(devices, ','));
    } else if (std::ranges::find(kNeedless, name) == kNeedless.end()) {
      out_.untaken.push_back(spelled);
    }
  }

  StackCommand& out_;
  std::string all_ranks_;
};

/// A word that is a program of another stack with verbs of its own.
bool has_verbs(const std::string& word) {
  const std::string program = program_of(word);
  return program == "swift" || program == "lockstep" || program == "llamafactory-cli" || program == "lmf" ||
         word == "llamafactory.cli" || word == "swift.cli.main";
}

}  // namespace

StackCommand stack_command(const ShellCommand& command) {
  const auto& words = command.words;
  StackCommand out{.verb = "", .args = {}, .environment = command.environment, .untaken = {}};
  const auto part = [&](size_t from, size_t to) {
    return std::vector<std::string>(words.begin() + static_cast<std::ptrdiff_t>(from),
                                    words.begin() + static_cast<std::ptrdiff_t>(to));
  };
  LauncherWords launcher(out);
  const auto take = [&](const std::string& verb, size_t program, size_t args) {
    launcher.read(part(0, program));
    out.verb = verb;
    const auto given = part(args, words.size());
    out.args.insert(out.args.begin(), given.begin(), given.end());
    return out;
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const bool runs = i == 0 || (words[0] != "echo" && words[0] != "cd" && words[0] != "printf");
    if (runs && has_verbs(words[i]) && i + 1 < words.size() && !words[i + 1].starts_with("-")) {
      return take(verb_of(words[i + 1]), i, i + 2);
    }
    if (i == 0 || !words[i].ends_with(".py")) continue;
    const std::string script = program_of(words[i]);
    const bool has_verb =
        i + 1 < words.size() && (words[i + 1] == "sft" || words[i + 1] == "pt" || words[i + 1] == "infer");
    return take(has_verb                       ? words[i + 1]
                : script.starts_with("infer")  ? "infer"
                : script.starts_with("export") ? "export"
                                               : "sft",
                i, has_verb ? i + 2 : i + 1);
  }
  return out;
}

}  // namespace lockstep
