#include "lockstep/guard/structure.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

std::string text_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : std::string();
}

std::map<std::string, std::string> texts_at(const Json& json, const char* key) {
  std::map<std::string, std::string> out;
  const auto at = json.find(key);
  if (at == json.end() || !at->is_object()) return out;
  for (const auto& [name, value] : at->items()) {
    if (value.is_string()) out[name] = value.get<std::string>();
  }
  return out;
}

const std::string* node_at(const Structure& structure, const std::string& path) {
  const auto at = std::ranges::find(structure.nodes, path, &std::pair<std::string, std::string>::first);
  return at == structure.nodes.end() ? nullptr : &at->second;
}

bool stands_for_itself(const std::string& path) {
  return !path.empty() && std::isalpha(static_cast<unsigned char>(path[0]));
}

/// Of the longest path that `path` begins with.
const std::string* nearest(const std::map<std::string, std::string>& texts, const std::string& path) {
  const std::string* found = nullptr;
  for (const auto& [begin, text] : texts) {  // in order: longer ones come later
    if (path.starts_with(begin)) found = &text;
  }
  return found;
}

/// The same values, gathered in another order.
std::optional<NodeDifference> other_order(const Structure& mine, const Structure& theirs) {
  const auto [at, there] = std::ranges::mismatch(mine.nodes, theirs.nodes);
  if (at == mine.nodes.end() || there == theirs.nodes.end()) return std::nullopt;
  const auto place = [&](const Structure& of) {
    const auto found = std::ranges::find(of.nodes, at->first, &std::pair<std::string, std::string>::first);
    return fmt::format("number {} of the values", found - of.nodes.begin() + 1);
  };
  return NodeDifference{.path = mine.title + at->first,
                        .mine = place(mine),
                        .theirs = place(theirs),
                        .fix = "build it with its keys in one order on all ranks, for instance sorted"};
}

}  // namespace

bool Structure::shows_a_batch() const {
  return std::ranges::any_of(nodes, [](const auto& node) { return stands_for_itself(node.first); });
}

std::optional<Structure> structure_from(const std::string& text) {
  const Json json = parse_json_or_discard(text);
  const auto nodes = json.is_object() ? json.find("nodes") : json.end();
  if (nodes == json.end() || !nodes->is_array()) return std::nullopt;
  Structure out{.label = text_at(json, "label"), .title = text_at(json, "title"), .note = text_at(json, "note")};
  for (const auto& node : *nodes) {
    if (!node.is_array() || node.size() != 2 || !node[0].is_string() || !node[1].is_string()) return std::nullopt;
    out.nodes.emplace_back(node[0].get<std::string>(), node[1].get<std::string>());
  }
  out.names = texts_at(json, "names");
  out.fixes = texts_at(json, "fixes");
  return out;
}

std::optional<NodeDifference> first_difference(const Structure& mine, const Structure& theirs) {
  const bool one_title = mine.title == theirs.title;
  const auto differs = [&](const std::pair<std::string, std::string>& node, const Structure& other) {
    if (!one_title && !stands_for_itself(node.first)) return false;
    const std::string* there = node_at(other, node.first);
    return there == nullptr || *there != node.second;
  };
  const std::string* path = nullptr;
  for (const auto& [one, other] : {std::pair(&mine, &theirs), std::pair(&theirs, &mine)}) {
    const auto at = std::ranges::find_if(one->nodes, [&](const auto& node) { return differs(node, *other); });
    if (at != one->nodes.end() && path == nullptr) path = &at->first;
  }
  if (path == nullptr) return one_title ? other_order(mine, theirs) : std::nullopt;
  const auto text = [&](const Structure& of) {
    const std::string* found = node_at(of, *path);
    return found == nullptr ? std::string("nothing") : *found;
  };
  const auto of_either = [&](std::map<std::string, std::string> Structure::*texts) {
    const std::string* own = nearest(mine.*texts, *path);
    return own != nullptr ? own : nearest(theirs.*texts, *path);
  };
  const std::string *name = of_either(&Structure::names), *fix = of_either(&Structure::fixes);
  return NodeDifference{.path = (stands_for_itself(*path) ? "" : mine.title) + *path +
                                (name == nullptr ? "" : fmt::format(" (\"{}\")", *name)),
                        .mine = text(mine),
                        .theirs = text(theirs),
                        .fix = fix == nullptr ? "" : *fix};
}

}  // namespace lockstep
