#include "lockstep/text/settings_tokens.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/added_tokens.h"
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

/// Special tokens that the files name, and those without a name.
std::vector<std::string> special_in(const TokenizerFolder& folder, const Json& config) {
  std::vector<std::string> special;
  for (const auto& [name, text] : named_tokens(folder)) special.push_back(text);
  for (const auto& text : extra_in(config)) special.push_back(text);
  if (!has_decoder(config)) std::ranges::copy(extra_in(object_in(folder, kMap)), std::back_inserter(special));
  return special;
}

/// Whose tokenizer transformers makes anew of words and merges, so that tokenizer.json's list says nothing of its tokens.
bool is_rebuilt(const std::string& name) { return name.starts_with("Qwen2Token") || name.starts_with("LlamaToken"); }

/// The list of tokenizer.json, and what the files beside it make of it. Source: transformers 5.23 tokenization_utils_tokenizers.py
/// TokenizersBackend.__init__, and what tokenizers' add_tokens does with a token that is there.
class TokenList {
 public:
  /// `where` the list stands, for messages.
  TokenList(Json& list, std::string where, const std::string& tokenizer_class)
      : list_(list), where_(std::move(where)), rebuilt_(is_rebuilt(tokenizer_class)) {
    for (size_t i = 0; i < list_.size(); ++i) {
      if (const auto text = text_of(list_[i])) places_.emplace(*text, i);
    }
  }

  void add(Json token) {
    if (places_.emplace(*text_of(token), list_.size()).second) list_.push_back(std::move(token));
  }
  /// One of added_tokens_decoder: where tokenizer.json has it with other flags, these count.
  void put(const Json& token, const std::string& where, bool named) {
    AddedToken said = read_added_token(token, where);
    const auto at = places_.find(said.content);
    if (at == places_.end()) {
      said.special = said.special || named;
      return add(entry_from(said));
    }
    Json& own = list_[at->second];
    const AddedToken before = read_added_token(own, where_);
    if (said == before) return;
    said.special = said.special || named || (before.special && !rebuilt_);  // once left out of texts, always left out
    own.update(entry_from(said));
  }
  /// Qwen2Tokenizer adds its special tokens once more, as plain ones.
  void make_plain(const std::string& content) {
    const auto at = places_.find(content);
    if (at != places_.end()) list_[at->second].update(entry_of(content, true));
  }

 private:
  static Json entry_from(const AddedToken& token) {
    return {{"content", token.content},       {"lstrip", token.lstrip},           {"rstrip", token.rstrip},
            {"normalized", token.normalized}, {"single_word", token.single_word}, {"special", token.special}};
  }

  Json& list_;
  std::string where_;
  bool rebuilt_;
  std::map<std::string, size_t, std::less<>> places_;
};

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
  const Json config = object_in(folder, kConfig);
  const std::vector<std::string> special = special_in(folder, config);
  const NamedTokens named = named_tokens(folder);
  const Json name = config.value("tokenizer_class", Json());
  const std::string tokenizer_class = name.is_string() ? name.get<std::string>() : "";
  TokenList tokens(list, file.path + ": added_tokens", tokenizer_class);
  if (has_decoder(config)) {
    const std::string where = folder.path(kConfig).string();
    for (const Json& token : decoded(config, where)) {
      const bool is_named = std::ranges::any_of(named, [&](const auto& one) { return one.second == token["content"]; });
      tokens.put(token, where + ": added_tokens_decoder", is_named);
    }
  } else {
    const std::set<std::string> all(special.begin(), special.end());
    for (Json& token : of_ids(object_in(folder, kIds), all, folder.path(kIds).string())) tokens.add(std::move(token));
  }
  for (const auto& text : special) tokens.add(entry_of(text, true));
  if (!tokenizer_class.starts_with("Qwen2Token")) return;
  for (const auto& text : special) tokens.make_plain(text);
}

}  // namespace lockstep
