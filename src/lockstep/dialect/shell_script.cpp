#include "lockstep/dialect/shell_script.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

namespace lockstep {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// "NAME=value" at the begin of a command; the length of the name, or 0.
size_t name_of_assignment(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || std::isdigit(static_cast<unsigned char>(word[0])) != 0) return 0;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), is_name) ? equals : 0;
}

class Script {
 public:
  explicit Script(const std::string& text) : text_(text) {}

  std::vector<ShellCommand> commands() {
    while (at_ < text_.size()) step();
    end_command();
    return std::move(commands_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '\\' && at_ + 1 < text_.size()) {
      if (text_[at_ + 1] == '\r') ++at_;
      if (text_[at_ + 1] != '\n') add(text_[at_ + 1]);
      at_ += 2;
    } else if (c == '\'' || c == '"') {
      quoted(c);
    } else if (c == '$') {
      variable();
    } else if (c == '#' && !in_word_) {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '\n' || c == ';' || c == '&' || c == '|') {
      end_command();
      ++at_;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      end_word();
      ++at_;
    } else {
      add(c);
      ++at_;
    }
  }

  void add(char c) {
    word_ += c;
    in_word_ = true;
  }

  void quoted(char quote) {
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != quote;) {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) {
        if (text_[at_ + 1] != '\n') word_ += text_[at_ + 1];
        at_ += 2;
      } else if (quote == '"' && text_[at_] == '$') {
        variable();
      } else {
        word_ += text_[at_++];
      }
    }
    ++at_;
  }

  /// $NAME, ${NAME}, ${NAME:-otherwise}.
  void variable() {
    const size_t from = at_++;
    std::string name, otherwise;
    if (at_ < text_.size() && text_[at_] == '{') {
      const size_t end = text_.find('}', at_);
      if (end == std::string::npos) return add('$');
      name = text_.substr(at_ + 1, end - at_ - 1);
      if (const size_t colon = name.find(":-"); colon != std::string::npos) {
        otherwise = name.substr(colon + 2);
        name.resize(colon);
      }
      at_ = end + 1;
    } else {
      while (at_ < text_.size() && is_name(text_[at_])) name += text_[at_++];
    }
    const auto known = variables_.find(name);
    in_word_ = true;
    word_ += known != variables_.end() ? known->second
             : !otherwise.empty()      ? otherwise
                                       : text_.substr(from, at_ - from);
  }

  void end_word() {
    if (!in_word_) return;
    in_word_ = false;
    std::string word = std::exchange(word_, "");
    const size_t name = words_.empty() ? name_of_assignment(word) : 0;
    if (name == 0) {
      words_.push_back(std::move(word));
    } else {
      before_[word.substr(0, name)] = word.substr(name + 1);
    }
  }

  void end_command() {
    end_word();
    std::vector<std::string> words = std::exchange(words_, {});
    std::map<std::string, std::string> before = std::exchange(before_, {});
    if (!words.empty() && words[0] == "export") {
      for (const auto& word : words) {
        if (const size_t name = name_of_assignment(word); name > 0)
          exported_[word.substr(0, name)] = word.substr(name + 1);
      }
      for (const auto& [name, value] : exported_) variables_[name] = value;
    } else if (words.empty()) {
      for (const auto& [name, value] : before) variables_[name] = value;
    } else {
      before.insert(exported_.begin(), exported_.end());
      commands_.push_back({std::move(before), std::move(words)});
    }
  }

  const std::string& text_;
  size_t at_ = 0;
  bool in_word_ = false;
  std::string word_;
  std::vector<std::string> words_;
  std::map<std::string, std::string> variables_, exported_, before_;
  std::vector<ShellCommand> commands_;
};

std::string program_of(const std::string& word) { return std::filesystem::path(word).filename().string(); }

std::string verb_of(const std::string& word) {
  return word == "train" || word == "finetune" ? "sft"
         : word == "merge-lora"                ? "export"
         : word == "chat"                      ? "infer"
                                               : word;
}

}  // namespace

std::vector<ShellCommand> shell_commands(const std::string& script) { return Script(script).commands(); }

StackCommand stack_command(const ShellCommand& command) {
  const auto& words = command.words;
  StackCommand out{.verb = "", .args = {}, .environment = command.environment};
  const std::string program = program_of(words[0]);
  const auto rest = [&](size_t from) {
    return std::vector<std::string>(words.begin() + static_cast<std::ptrdiff_t>(from), words.end());
  };
  if ((program == "swift" || program == "lockstep" || program == "llamafactory-cli" || program == "lmf") &&
      words.size() > 1) {
    out.verb = verb_of(words[1]);
    out.args = rest(2);
    return out;
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string flag = words[i].substr(0, equals);
    if (flag == "--nproc_per_node" || flag == "--nproc-per-node" || flag == "--num_gpus" || flag == "--num_processes") {
      out.environment["NPROC_PER_NODE"] = equals != std::string::npos ? words[i].substr(equals + 1)
                                          : i + 1 < words.size()      ? words[i + 1]
                                                                      : "";
    }
    if (!words[i].ends_with(".py")) continue;
    const std::string script = program_of(words[i]);
    const bool has_verb =
        i + 1 < words.size() && (words[i + 1] == "sft" || words[i + 1] == "pt" || words[i + 1] == "infer");
    out.verb = has_verb                       ? words[i + 1]
               : script.starts_with("infer")  ? "infer"
               : script.starts_with("export") ? "export"
                                              : "sft";
    out.args = rest(has_verb ? i + 2 : i + 1);
    return out;
  }
  return out;
}

}  // namespace lockstep
