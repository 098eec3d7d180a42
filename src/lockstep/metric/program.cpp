#include "lockstep/metric/program.h"

#include <filesystem>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/search_path.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> words_of_command(const std::string& text) {
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
  if (quote != 0) throw usage_error(fmt::format("--metric {}: a quote {} does not end", text, quote));
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

UserError nothing_there(const std::string& text, const std::string& name) {
  const fs::path wanted(name);
  const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename().string());
  const std::string near = nearest_name(wanted.filename().string(), names);
  return usage_error(fmt::format("--metric {}: expected a program, found no file {}", text, name),
                     near.empty() ? "the path is taken from the folder that lockstep is started in"
                                  : fmt::format("did you mean {}?", (folder / near).string()));
}

}  // namespace

std::string Program::stem() const { return fs::path(argv.front()).stem().string(); }

Program find_program(const std::string& text, const std::string& search_path) {
  Program program{.text = text, .path = {}, .argv = words_of_command(text)};
  if (is_file(text)) program.argv = {text};  // a path with blanks in it
  if (program.argv.empty()) throw usage_error("--metric: expected a program, found no word", "--metric ./my_metric.py");
  const std::string& name = program.argv.front();
  program.path = located(name, search_path);
  if (program.path.empty()) throw nothing_there(text, name);
  if (!is_file(program.path)) {
    throw usage_error(fmt::format("--metric {}: expected a program, found a folder", text), "--metric ./my_metric.py");
  }
  if (::access(program.path.c_str(), X_OK) != 0) {
    throw usage_error(fmt::format("--metric {}: {} is not executable", text, name),
                      fmt::format("chmod +x {}, and begin it with a line such as #!/usr/bin/env python3", name));
  }
  return program;
}

}  // namespace lockstep
