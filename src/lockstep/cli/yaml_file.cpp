#include "lockstep/cli/yaml_file.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::string place(const std::filesystem::path& path, const YAML::Mark& mark) {
  if (mark.is_null()) return path.string();
  return fmt::format("{}:{}:{}", path.string(), mark.line + 1, mark.column + 1);
}

Json scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  const Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_boolean() || parsed.is_number() ? parsed : Json(text);
}

Json value_of(const YAML::Node& node, const std::filesystem::path& path) {
  if (node.IsScalar()) return scalar(node);
  if (node.IsSequence()) {
    Json list = Json::array();
    for (const auto& item : node) list.push_back(value_of(item, path));
    return list;
  }
  if (!node.IsMap()) return nullptr;
  Json map = Json::object();
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      throw usage_error(
          fmt::format("{}: expected a key of text, found a list or map", place(path, entry.first.Mark())));
    }
    const std::string key = entry.first.Scalar();
    if (map.contains(key)) {
      throw usage_error(fmt::format("{}: the key \"{}\" stands twice", place(path, entry.first.Mark()), key),
                        "keep one of them");
    }
    map[key] = value_of(entry.second, path);
  }
  return map;
}

}  // namespace

Json read_yaml(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  try {
    return value_of(YAML::Load(text), path);
  } catch (const YAML::Exception& error) {
    throw usage_error(fmt::format("{}: this is no YAML: {}", place(path, error.mark), error.msg),
                      "lists and maps need the same indentation throughout, by spaces");
  }
}

}  // namespace lockstep
