#include "lockstep/tasks/config_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/yaml_file.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

/// They belong to a staged run as a whole: the next stage starts where the one before has ended.
constexpr std::array kOfTheWhole = {"model", "model_id_or_path", "output_dir", "resume_from_checkpoint", "add_version"};

std::string word_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

bool is_flag(const std::string& word, const std::string& flag) { return word == flag || word.starts_with(flag + "="); }

bool is_given(const Words& args, const std::string& flag) {
  return std::ranges::any_of(args, [&](const auto& word) { return is_flag(word, flag); });
}

/// Null stands for "not given" in args.json. A flag on the command line replaces the file's.
void add_flag(Words& out, const std::string& key, const Json& value, const Words& rest) {
  if (value.is_null() || is_given(rest, "--" + key) || (value.is_array() && value.empty())) return;
  out.push_back("--" + key);
  if (!value.is_array()) return out.push_back(word_of(value));
  for (const auto& item : value) out.push_back(word_of(item));
}

Words flags_of(const Json& json, const Words& rest) {
  Words out;
  for (const auto& [key, value] : json.items()) add_flag(out, key, value, rest);
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

/// Takes a flag of one value out of the words; "" when it is not there.
std::string take(Words& words, const std::string& flag) {
  std::string value;
  for (size_t i = 0; i < words.size();) {
    if (!is_flag(words[i], flag)) {
      ++i;
      continue;
    }
    const bool apart = words[i] == flag && i + 1 < words.size();
    value = apart ? words[i + 1] : words[i].substr(std::min(words[i].size(), flag.size() + 1));
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(at, at + (apart ? 2 : 1));
  }
  return value;
}

/// A flag of the whole: the command line's, else the file's, which loses the key.
std::string of_the_whole(Json& json, Words& rest, const std::string& key) {
  std::string given = take(rest, "--" + key);
  if (given.empty() && json.contains(key) && !json[key].is_null()) given = word_of(json[key]);
  json.erase(key);
  return given;
}

std::string name_of(const Json& stage, const std::string& where, const std::set<std::string>& taken) {
  const Json name = stage.value("name", Json(nullptr));
  const std::string text = name.is_null() ? "" : word_of(name);
  const bool plain = !text.empty() && std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (!plain) {
    throw usage_error(fmt::format("{}: expected a name of letters, digits, - and _ (its folder is called so), found {}",
                                  where, name.dump()),
                      "name: projector");
  }
  if (taken.contains(text)) throw usage_error(fmt::format("{}: the name {} stands twice", where, text));
  return text;
}

/// LLaMA-Factory's "key=value" behind the file, up to the first flag.
void spell_overrides(Words& rest) {
  for (auto& word : rest) {
    if (word.starts_with("-")) return;
    if (word.find('=') != std::string::npos) word = "--" + word;
  }
}

/// A stage begins from the weights of the one before, and names the parts that it trains: these are trained whole where
/// nothing else is said.
void train_whole_parts(Json& flags, const Words& rest) {
  for (const char* name : {"tuner_type", "train_type", "sft_type"}) {
    if (flags.contains(name) || is_given(rest, std::string("--") + name)) return;
  }
  flags["tuner_type"] = "full";
}

StagedFile staged_file(const std::string& file, Json json, Words rest) {
  StagedFile out{.file = file};
  const Json stages = json["stages"];
  json.erase("stages");
  if (!stages.is_array() || stages.empty()) {
    throw usage_error(fmt::format("{}: \"stages\": expected a list of stages, found {}", file, stages.dump()),
                      "stages: [{name: projector, train: projector}, {name: all, train: \"llm,projector\"}]");
  }
  out.model = of_the_whole(json, rest, "model");
  const std::string alias = of_the_whole(json, rest, "model_id_or_path");
  if (out.model.empty()) out.model = alias;
  out.output_dir = of_the_whole(json, rest, "output_dir");
  out.resume_from_checkpoint = of_the_whole(json, rest, "resume_from_checkpoint");
  of_the_whole(json, rest, "add_version");  // a stage's folder has its number and name instead
  std::set<std::string> names;
  for (size_t i = 0; i < stages.size(); ++i) {
    const std::string where = fmt::format("{}: stage {}", file, i + 1);
    if (!stages[i].is_object()) {
      throw usage_error(fmt::format("{}: expected a map of flags, found {}", where, stages[i].dump()));
    }
    const std::string name = name_of(stages[i], where, names);
    names.insert(name);
    Json flags = json;
    for (const auto& [key, value] : stages[i].items()) {
      if (std::ranges::find(kOfTheWhole, key) != kOfTheWhole.end()) {
        throw usage_error(
            fmt::format("{} ({}): {} belongs to all stages: each starts from the last checkpoint of the one "
                        "before, in a folder of its own",
                        where, name, key),
            fmt::format("put {} at the top of the file", key));
      }
      if (key != "name") flags[key] = value;
    }
    train_whole_parts(flags, rest);
    out.stages.push_back({name, flags_of(flags, rest)});
  }
  return out;
}

bool ends_with_any(const std::string& text, std::initializer_list<const char*> ends) {
  return std::ranges::any_of(ends, [&](const char* end) { return text.ends_with(end); });
}

}  // namespace

Expanded expand_config_file(const std::vector<std::string>& given) {
  std::vector<std::string> args = given;
  if (const auto flag = std::ranges::find(args, "--config");
      flag != args.end() && flag + 1 != args.end() && ends_with_any(flag[1], {".yaml", ".yml", ".json"})) {
    std::rotate(args.begin(), flag + 1, flag + 2);  // ms-swift's other way to name the file
    args.erase(std::ranges::find(args, "--config"));
  }
  if (args.empty() || args[0].starts_with("-")) return {args, {}, {}};
  const std::string& file = args[0];
  const bool yaml = ends_with_any(file, {".yaml", ".yml"});
  if (!yaml && !file.ends_with(".json")) return {args, {}, {}};
  if (!std::filesystem::is_regular_file(file)) {
    throw usage_error(fmt::format("{}: expected a file of flags, found no such file", file));
  }
  Json json = yaml ? read_yaml(file) : read_json(file);
  if (!json.is_object()) {
    throw usage_error(fmt::format("{}: expected a map of flags, found {}", file, json.type_name()));
  }
  Expanded out;
  if (json.contains("ENV")) {
    for (const auto& [name, text] : json["ENV"].items()) out.variables[name] = word_of(text);
    json.erase("ENV");
  }
  json.erase("rendering");  // what a checkpoint keeps beside its flags
  Words rest(args.begin() + 1, args.end());
  spell_overrides(rest);
  if (json.contains("stages")) {
    out.staged = staged_file(file, std::move(json), rest);
  } else {
    out.args = flags_of(json, rest);
  }
  return out;
}

}  // namespace lockstep
