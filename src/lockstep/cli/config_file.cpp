#include "lockstep/cli/config_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool is_given(const std::vector<std::string>& args, const std::string& flag) {
  for (const auto& word : args) {
    if (word == flag || word.starts_with(flag + "=")) return true;
  }
  return false;
}

}  // namespace

Expanded expand_config_file(const std::vector<std::string>& args) {
  if (args.empty() || args[0].starts_with("-")) return {args, {}};
  const std::string& file = args[0];
  if (file.ends_with(".yaml") || file.ends_with(".yml")) {
    throw usage_error(file + ": YAML files of flags are not read", "write the same keys as JSON");
  }
  if (!file.ends_with(".json")) return {args, {}};
  const Json json = read_json(file);
  if (!json.is_object()) throw usage_error(file + ": expected a JSON object of flags");
  Expanded out;
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  for (const auto& [key, value] : json.items()) {
    if (key == "ENV") {
      for (const auto& [name, text] : value.items()) out.variables[name] = word_of(text);
      continue;
    }
    // A flag on the command line replaces the file's; null stands for "not given" in args.json.
    if (value.is_null() || is_given(rest, "--" + key) || (value.is_array() && value.empty())) continue;
    out.args.push_back("--" + key);
    if (value.is_array()) {
      for (const auto& item : value) out.args.push_back(word_of(item));
    } else {
      out.args.push_back(word_of(value));
    }
  }
  out.args.insert(out.args.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace lockstep
