#include "lockstep/base/program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/search_path.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> words_of_command(std::string_view flag, const std::string& text) {
  std::vector<std::string> words;
  bool open = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote == 0 && (c == ' ' || c == '\t')) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    open = true;
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back() += text[++i];
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) throw usage_error(fmt::format("{} {}: a quote {} does not end", flag, text, quote));
  return words;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// In this folder, or along the search path; empty when it is nowhere.
std::string located(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos) return fs::exists(name) ? name : "";
  if (is_file(name)) return "./" + name;
  return program_on(search_path, name);
}

UserError nothing_there(std::string_view flag, const std::string& text, const std::string& name) {
  const fs::path wanted(name);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename().string());
  const std::string near = nearest_name(wanted.filename().string(), names);
  return usage_error(fmt::format("{} {}: expected a program, found no file {}", flag, text, name),
                     near.empty() ? "the path is taken from the folder that lockstep is started in"
                                  : fmt::format("did you mean {}?", (folder / near).string()));
}

/// What tells a library that it is one of several ranks would make a metric wait for the others.
std::vector<std::string> own_environment() {
  constexpr std::array kLaunchers = {"RANK",           "LOCAL_RANK",         "WORLD_SIZE",  "LOCAL_WORLD_SIZE",
                                     "GROUP_RANK",     "MASTER_ADDR",        "MASTER_PORT", "NPROC_PER_NODE",
                                     "LOCKSTEP_AGENT", "LOCKSTEP_JOB_SECRET"};
  constexpr std::array kPrefixes = {"SLURM_", "OMPI_", "PMI_", "PMIX_", "TORCHELASTIC_"};
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry), name = text.substr(0, text.find('='));
    const bool left_out =
        std::find(kLaunchers.begin(), kLaunchers.end(), name) != kLaunchers.end() ||
        std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](const char* prefix) { return name.starts_with(prefix); });
    if (!left_out) kept.emplace_back(text);
  }
  return kept;
}

UserError cannot_execute(const Program& program, int error) {
  const std::string why = error == ENOEXEC  ? "it begins with no #! line and is no binary"
                          : error == ENOENT ? "the interpreter that its first line names is not there"
                                            : std::strerror(error);
  return usage_error(fmt::format("{} {}: {} cannot be executed: {}", program.flag, program.text, program.path, why),
                     "begin it with a line such as #!/usr/bin/env python3, without a carriage return at its end");
}

}  // namespace

std::string Program::stem() const { return fs::path(argv.front()).stem().string(); }

Program find_program(std::string_view flag, const std::string& text, const std::string& search_path) {
  Program program{.flag = std::string(flag), .text = text, .path = {}, .argv = words_of_command(flag, text)};
  if (is_file(text)) program.argv = {text};  // a path with blanks in it
  const std::string example = fmt::format("for example {} ./my_program.py", flag);
  if (program.argv.empty()) throw usage_error(fmt::format("{}: expected a program, found no word", flag), example);
  const std::string& name = program.argv.front();
  program.path = located(name, search_path);
  if (program.path.empty()) throw nothing_there(flag, text, name);
  if (!is_file(program.path)) {
    throw usage_error(fmt::format("{} {}: expected a program, found a folder", flag, text), example);
  }
  if (::access(program.path.c_str(), X_OK) != 0) {
    throw usage_error(fmt::format("{} {}: {} is not executable", flag, text, name),
                      fmt::format("chmod +x {}, and begin it with a line such as #!/usr/bin/env python3", name));
  }
  return program;
}

std::string last_lines(const std::string& text) {
  constexpr size_t kLines = 12, kLongest = 400;
  std::vector<std::string> lines;
  for (auto& line : split(text, '\n')) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    line.erase(0, line.rfind('\r') + 1);  // a progress bar as it was left
    if (line.size() > kLongest) line = "..." + line.substr(line.size() - kLongest);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  std::string out;
  for (size_t i = lines.size() > kLines ? lines.size() - kLines : 0; i < lines.size(); ++i) out += "\n    " + lines[i];
  return out;
}

Child start_program(const Program& program, int in, int out, int err, bool ends_with_thread) {
  sigset_t none;
  ::sigemptyset(&none);
  try {
    return spawn({.argv = program.argv,
                  .program = program.path,
                  .what = "starting " + program.path,
                  .environment = own_environment(),
                  .in = in,
                  .out = out,
                  .err = err,
                  .group = ProcessGroup::kOwn,
                  .ends_with_thread = ends_with_thread,
                  .close_others = true,  // sockets of other ranks must not live on in the program
                  .default_signals = {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGHUP, SIGCHLD},
                  .signal_mask = none});
  } catch (const ExecError& error) {
    throw cannot_execute(program, error.number());
  }
}

}  // namespace lockstep
