#include "lockstep/base/yaml_file.h"

#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/base/utf8.h"

namespace lockstep {
namespace {

std::string place(const std::filesystem::path& path, const YAML::Mark& mark) {
  if (mark.is_null()) return path.string();
  return fmt::format("{}:{}:{}", path.string(), mark.line + 1, mark.column + 1);
}

Json scalar(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;  // quoted
  const Json parsed = parse_json_or_discard(text);
  return parsed.is_boolean() || parsed.is_number() ? parsed : Json(text);
}

/// Walks the document into JSON. An alias is walked again wherever it stands: nine lines of lists of the line before,
/// twice each, would be 2 GB, and one that holds itself has no end.
class Walk {
 public:
  explicit Walk(const std::filesystem::path& path) : path_(path) {}

  Json value(const YAML::Node& node) {
    pay(budget_.spend(2 * sizeof(Json)), node);
    if (node.IsScalar()) {
      pay(budget_.spend(node.Scalar().size()), node);
      return scalar(node);
    }
    if (!node.IsSequence() && !node.IsMap()) return nullptr;
    pay(budget_.enter(), node);
    Json out = node.IsMap() ? map(node) : list(node);
    budget_.leave();
    return out;
  }

 private:
  void pay(bool affordable, const YAML::Node& node) const {
    if (affordable) return;
    throw usage_error(fmt::format("{}: {}, aliases expanded", place(path_, node.Mark()), budget_.why()),
                      "a file of flags or stages is a few lists and maps");
  }

  Json list(const YAML::Node& node) {
    Json list = Json::array();
    for (const auto& item : node) list.push_back(value(item));
    return list;
  }

  Json map(const YAML::Node& node) {
    Json map = Json::object();
    std::set<std::string> keys;  // a map of JSON looks at all earlier keys for each
    std::vector<Json> merged;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        throw usage_error(
            fmt::format("{}: expected a key of text, found a list or map", place(path_, entry.first.Mark())));
      }
      const std::string& key = entry.first.Scalar();
      pay(budget_.spend(key.size()), entry.first);
      if (key == "<<" && entry.first.Tag() != "!") {
        merged.push_back(value(entry.second));
        require_maps(merged.back(), entry.first);
        continue;
      }
      if (!keys.insert(key).second) {
        throw usage_error(
            fmt::format("{}: the key \"{}\" stands twice", place(path_, entry.first.Mark()), cut_text(key)),
            "keep one of them");
      }
      put(map, key, value(entry.second));
    }
    for (const Json& one : merged) {
      if (one.is_object()) add_missing(map, keys, one);
      for (const Json& each : one.is_array() ? one : Json::array()) add_missing(map, keys, each);
    }
    return map;
  }

  static void put(Json& map, const std::string& key, Json below) {
    static_cast<std::vector<Json::object_t::value_type>&>(map.get_ref<Json::object_t&>())
        .emplace_back(key, std::move(below));
  }

  /// What stands in a map itself goes before what is merged into it, and what is merged first before the rest.
  static void add_missing(Json& map, std::set<std::string>& keys, const Json& from) {
    for (const auto& [key, below] : from.items()) {
      if (keys.insert(key).second) put(map, key, below);
    }
  }

  void require_maps(const Json& merged, const YAML::Node& at) const {
    bool fits = merged.is_object() || merged.is_array();
    for (const Json& one : merged.is_array() ? merged : Json::array()) fits = fits && one.is_object();
    if (!fits)
      throw usage_error(fmt::format("{}: expected a map, or a list of maps, to merge", place(path_, at.Mark())));
  }

  const std::filesystem::path& path_;
  JsonBudget budget_{{.depth = 64, .memory = size_t{16} << 20}};
};

/// What stands behind another "---" would be left out; nothing may stand there.
YAML::Node only_document(const std::vector<YAML::Node>& documents, const std::filesystem::path& path) {
  for (size_t i = 1; i < documents.size(); ++i) {
    if (documents[i].IsNull()) continue;
    throw usage_error(fmt::format("{}: expected one document, found another", place(path, documents[i].Mark())),
                      "a file for each, without \"---\" between");
  }
  return documents.empty() ? YAML::Node() : documents[0];
}

}  // namespace

Json read_yaml(const std::filesystem::path& path) {
  constexpr size_t kMostBytes = size_t{1} << 20;  // the parser keeps hundreds of bytes for each of the file's
  const std::string text = read_text(path, kMostBytes);
  if (!is_utf8(text)) {
    throw usage_error(fmt::format("{}: expected YAML in UTF-8, found bytes that are none", path.string()),
                      "save it in UTF-8");
  }
  try {
    return Walk(path).value(only_document(YAML::LoadAll(text), path));
  } catch (const YAML::Exception& error) {
    throw usage_error(fmt::format("{}: this is no YAML: {}", place(path, error.mark), error.msg),
                      "lists and maps need the same indentation throughout, by spaces");
  }
}

}  // namespace lockstep
