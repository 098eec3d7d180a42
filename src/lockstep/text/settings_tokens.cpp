#include "lockstep/text/settings_tokens.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/json_keys.h"

namespace lockstep {
namespace {

constexpr const char *kConfig = "tokenizer_config.json", *kMap = "special_tokens_map.json", *kIds = "added_tokens.json";

Json object_in(const TokenizerFolder& folder, const char* name) {
  const Json json = folder.has(name) ? folder.json(name) : Json::object();
  return json.is_object() ? json : Json::object();
}

/// A token is a text, or an object with "content".
std::optional<std::string> text_of(const Json& token) {
  if (token.is_string()) return token.get<std::string>();
  const bool object = token.is_object() && token.contains("content") && token["content"].is_string();
  return object ? std::optional(token["content"].get<std::string>()) : std::nullopt;
}

bool has_decoder(const Json& config) {
  return config.contains("added_tokens_decoder") && config["added_tokens_decoder"].is_object();
}

/// Whatever a file calls a token.
NamedTokens named_in(const Json& config) {
  NamedTokens named;
  const auto take = [&](const std::string& name, const Json& value) {
    if (const auto text = text_of(value)) named[name] = *text;
  };
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) take(key, value);
  }
  const auto extra = config.find("extra_special_tokens");
  if (extra == config.end() || !extra->is_object()) return named;
  for (const auto& [key, value] : extra->items()) take(key, value);
  return named;
}

/// Special tokens without a name, of the newer list, or else of the older one.
std::vector<std::string> extra_in(const Json& config) {
  std::vector<std::string> extra;
  for (const char* key : {"extra_special_tokens", "additional_special_tokens"}) {
    const auto list = config.find(key);
    if (list == config.end() || !list->is_array() || !extra.empty()) continue;
    for (const auto& token : *list) {
      if (const auto text = text_of(token)) extra.push_back(*text);
    }
  }
  return extra;
}

Json entry_of(const std::string& content, bool special) {
  return {{"content", content},     {"lstrip", false},      {"rstrip", false},
          {"normalized", !special}, {"single_word", false}, {"special", special}};
}

/// Those of added_tokens_decoder, in the order of their ids.
std::vector<Json> decoded(const Json& config, const std::string& where) {
  std::vector<std::pair<int64_t, Json>> found;
  for (const auto& [id, token] : config["added_tokens_decoder"].items()) {
    if (!token.is_object() || !text_of(token)) {
      throw checkpoint_error(fmt::format("{}: added_tokens_decoder: \"{}\": expected an object with content, found {}",
                                         where, cut_text(id), cut_text(token.dump())));
    }
    int64_t number = 0;
    std::from_chars(id.data(), id.data() + id.size(), number);
    found.emplace_back(number, token);
  }
  std::ranges::stable_sort(found, {}, &std::pair<int64_t, Json>::first);
  std::vector<Json> out;
  for (auto& [id, token] : found) out.push_back(std::move(token));
  return out;
}

std::vector<Json> of_ids(const Json& ids, const std::set<std::string>& special, const std::string& where) {
  std::vector<std::pair<int32_t, std::string>> found;
  for (const auto& [content, id] : ids.items())
    found.emplace_back(id_of(id, fmt::format("{}: \"{}\"", where, cut_text(content))), content);
  std::ranges::sort(found);
  std::vector<Json> out;
  for (const auto& [id, content] : found) out.push_back(entry_of(content, special.contains(content)));
  return out;
}

/// What may be missing, in the order in which it is added.
std::vector<Json> wanted(const TokenizerFolder& folder) {
  const Json config = object_in(folder, kConfig), map = object_in(folder, kMap);
  std::vector<std::string> special;
  for (const auto& [name, text] : named_tokens(folder)) special.push_back(text);
  for (const auto& text : extra_in(config)) special.push_back(text);
  if (!has_decoder(config)) std::ranges::copy(extra_in(map), std::back_inserter(special));
  std::vector<Json> out = has_decoder(config) ? decoded(config, folder.path(kConfig).string())
                                              : of_ids(object_in(folder, kIds), {special.begin(), special.end()},
                                                       folder.path(kIds).string());
  for (const auto& text : special) out.push_back(entry_of(text, true));
  return out;
}

}  // namespace

NamedTokens named_tokens(const TokenizerFolder& folder) {
  const Json config = object_in(folder, kConfig);
  NamedTokens named = named_in(config), map = named_in(object_in(folder, kMap));
  if (!has_decoder(config)) named.swap(map);
  named.merge(map);
  return named;
}

void add_tokens_of_settings(const TokenizerFolder& folder, TokenizerFile& file) {
  Json& list = (*file.rest)["added_tokens"];
  if (list.is_null()) list = Json::array();
  if (!list.is_array()) return;  // which is told where it is read
  std::set<std::string> known;
  for (const auto& token : list) {
    if (const auto text = text_of(token)) known.insert(*text);
  }
  for (Json& token : wanted(folder)) {
    if (known.insert(*text_of(token)).second) list.push_back(std::move(token));
  }
}

}  // namespace lockstep
