#include "lockstep/data/row_mapping.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/row_fields.h"
#include "lockstep/data/row_tools.h"  // literal_value

namespace lockstep {
namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

/// Whether a row's column is the one that is called so: as in ms-swift, whatever the case of letters.
bool same_column(const std::string& a, const std::string& b) { return lower(a) == lower(b); }

/// Columns of which a row has one: another that differs in its letters says something else.
constexpr std::array kMediaNames = {std::array{"images", "image"}, std::array{"videos", "video"},
                                    std::array{"audios", "audio"}, std::array{"system", "system_prompt"}};

constexpr std::array kInput = {"input"};  // which may stand beside an instruction

/// The kind of column that a name in small letters is of; empty: none that is read in other letters.
std::span<const char* const> kind_of(const std::string& name) {
  const auto has = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (name == kInput[0]) return kInput;
  if (has(kTurnNames)) return kTurnNames;
  if (has(kQueryNames)) return kQueryNames;
  if (has(kResponseNames)) return kResponseNames;
  const auto* const kind = std::ranges::find_if(kMediaNames, has);
  return kind == kMediaNames.end() ? std::span<const char* const>() : std::span<const char* const>(*kind);
}

Json in_usual_case(Json row) {
  for (const auto& [name, usual] : recased_columns(row)) {
    Json value = std::move(row.at(name));
    row.erase(name);
    row[usual] = std::move(value);
  }
  return row;
}

/// An object under way. That of JSON looks at all earlier names for each, and a row of strangers may have a million.
class Fields {
 public:
  Fields() : items_(static_cast<Items&>(object_.get_ref<Json::object_t&>())) {}
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  /// The value of that name, which is null where it is new.
  Json& operator[](const std::string& name) {
    const auto [at, is_new] = places_.emplace(name, items_.size());
    if (is_new) items_.emplace_back(name, Json());
    return items_[at->second].second;
  }
  Json take() { return std::move(object_); }

 private:
  using Items = std::vector<Json::object_t::value_type>;

  Json object_ = Json::object();
  Items& items_;
  std::unordered_map<std::string, size_t> places_;
};

Json mapped_turn(const Json& turn, const RowMapping& mapping) {
  if (!turn.is_object()) return turn;
  Fields out;
  for (const auto& [key, value] : turn.items()) {
    const bool is_role =
        key == (mapping.role_key.empty() ? "role" : mapping.role_key) || (mapping.role_key.empty() && key == "from");
    if (is_role) {
      const auto known = value.is_string() ? mapping.roles.find(value.get<std::string>()) : mapping.roles.end();
      out["role"] = known == mapping.roles.end() ? value : Json(known->second);
    } else {
      out[key == mapping.content_key ? "content" : key] = value;
    }
  }
  return out.take();
}

}  // namespace

std::string RowMapping::as_text() const {
  std::string text = fmt::format("{} {}", role_key, content_key);
  for (const auto& [from, to] : columns) text += fmt::format("; {} {}", from, to);
  for (const auto& [from, to] : roles) text += fmt::format(", {} {}", from, to);
  for (const auto& name : unread) text += fmt::format("; without {}", name);
  return text;
}

void RowMapping::add_found(const Json& row, std::set<std::string>& found) const {
  if (!row.is_object()) return;
  for (const auto& [from, to] : columns) {
    if (found.contains(from)) continue;
    for (const auto& [name, value] : row.items()) {
      if (same_column(from, name)) found.insert(from);
    }
  }
}

void RowMapping::add_left_out(const Json& row, std::set<std::string>& left_out) const {
  if (!row.is_object()) return;
  for (const auto& name : unread) {
    const auto found = row.find(name);
    if (found != row.end() && !found->is_null()) left_out.insert(name);
  }
}

NamedColumns recased_columns(const Json& row) {
  struct Chosen {
    std::string name, usual;
    std::ptrdiff_t place;  // among the names of its kind
  };
  std::vector<std::pair<const void*, Chosen>> by_kind;
  if (!row.is_object()) return {};
  for (const auto& [name, value] : row.items()) {
    if (value.is_null() || std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; })) continue;
    const std::string usual = lower(name);
    const auto kind = kind_of(usual);
    if (kind.empty() || first_name(row, kind) != nullptr) continue;
    Chosen one{name, usual, std::ranges::find(kind, usual) - kind.begin()};
    const auto before = std::ranges::find(by_kind, static_cast<const void*>(kind.data()),
                                          [](const auto& entry) { return entry.first; });
    if (before == by_kind.end()) {
      by_kind.emplace_back(kind.data(), std::move(one));
    } else if (one.place < before->second.place) {
      before->second = std::move(one);
    }
  }
  NamedColumns out;
  for (auto& [kind, one] : by_kind) out.emplace_back(std::move(one.name), std::move(one.usual));
  return out;
}

Json mapped_row(Json row, const RowMapping& mapping, const std::string& where) {
  if (!row.is_object()) return row;
  if (mapping.empty()) return in_usual_case(std::move(row));
  Fields fields;
  for (const auto& [name, value] : row.items()) {
    const auto found =
        std::ranges::find_if(mapping.columns, [&name = name](const auto& one) { return same_column(one.first, name); });
    if (found == mapping.columns.end() && mapping.unread.contains(name)) continue;
    const std::string& to = found == mapping.columns.end() ? name : found->second;
    Json& placed = fields[to];
    if (!placed.is_null()) {
      if (value.is_null()) continue;
      throw data_error(
          fmt::format("{}: expected one column to be \"{}\", found two: \"{}\" is called so by --columns or "
                      "dataset_info.json, and another is",
                      where, to, name));
    }
    placed = value;
  }
  Json out = fields.take();
  if (mapping.role_key.empty() && mapping.content_key.empty() && mapping.roles.empty()) return out;
  for (const char* name : {"messages", "conversations", "conversation"}) {
    const auto turns = out.find(name);
    if (turns == out.end() || turns->is_null()) continue;
    *turns = literal_value(*turns, where, name, "a list of turns, at least one");
    if (!turns->is_array()) continue;
    for (auto& turn : *turns) turn = mapped_turn(turn, mapping);
  }
  return out;
}

}  // namespace lockstep
