#include "lockstep/text/new_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/base/utf8.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct NewToken {
  std::string content;
  int32_t id = 0;

  Json entry() const {
    return {{"content", content}, {"lstrip", false},      {"normalized", false},
            {"rstrip", false},    {"single_word", false}, {"special", true}};
  }
};

constexpr size_t kLongest = 1024;  // bytes

void check_text(const std::string& token) {
  const bool blank = token.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
  if (!blank && token.size() <= kLongest && is_utf8(token)) return;
  throw usage_error(
      fmt::format("--new_special_tokens: expected a text of up to {} bytes of UTF-8 that is not blank, found "
                  "\"{}\"",
                  kLongest, cut_text(token)),
      "one word a token: <box> </box>");
}

/// It is found in a text already, as one token that is special.
bool is_special_of(const Tokenizer& tokenizer, const std::string& token) {
  const auto id = tokenizer.id_of(token);
  return id && tokenizer.is_special(*id) && tokenizer.encode(token, {.continues = true}) == std::vector{*id};
}

std::vector<NewToken> numbered(const Tokenizer& tokenizer, const std::vector<std::string>& tokens) {
  auto next = static_cast<int32_t>(tokenizer.vocab_size());
  std::vector<NewToken> out;
  for (const auto& token : tokens) {
    check_text(token);
    const auto same = [&](const NewToken& one) { return one.content == token; };
    if (is_special_of(tokenizer, token) || std::ranges::any_of(out, same)) continue;
    const auto known = tokenizer.id_of(token);
    out.push_back({token, known ? *known : next++});
  }
  return out;
}

/// Where the value of a key of the outermost object stands in a JSON text that has been read before.
std::optional<std::pair<size_t, size_t>> value_of(std::string_view text, std::string_view key) {
  const std::string wanted = fmt::format("\"{}\"", key);
  size_t depth = 0, begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      const size_t from = at++;
      while (text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      const size_t colon = text.find_first_not_of(" \t\r\n", at + 1);
      if (depth == 1 && begin == 0 && text[colon] == ':' && text.substr(from, at + 1 - from) == wanted)
        begin = colon + 1;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    const bool closes = c == ']' || c == '}';
    if (begin != 0 && depth == 1 && (c == ',' || closes)) return std::pair{begin, at};
    if (closes) --depth;
  }
  return std::nullopt;
}

/// tokenizer.json with more entries, all else byte for byte: its vocabulary is large.
std::string tokenizer_json(std::string text, const std::string& where, const std::vector<NewToken>& tokens) {
  const auto place = value_of(text, "added_tokens");
  Json list = Json::array();
  if (place) list = parse_json(std::string_view(text).substr(place->first, place->second - place->first), where);
  if (!list.is_array()) list = Json::array();
  for (const auto& token : tokens) {
    std::erase_if(list.get_ref<Json::array_t&>(),
                  [&](const Json& one) { return one.is_object() && one.value("content", Json()) == token.content; });
    Json entry = {{"id", token.id}};
    entry.update(token.entry());
    list.push_back(std::move(entry));
  }
  if (place) return text.replace(place->first, place->second - place->first, " " + list.dump());
  return text.insert(text.find('{') + 1, fmt::format("\"added_tokens\": {}, ", list.dump()));
}

/// transformers 4 and 5 name the list differently.
void list_tokens(Json& json, const std::vector<NewToken>& tokens) {
  const char* const name = json.contains("extra_special_tokens") && json.at("extra_special_tokens").is_array()
                               ? "extra_special_tokens"
                               : "additional_special_tokens";
  if (!json.contains(name) || !json.at(name).is_array()) json[name] = Json::array();
  for (const auto& token : tokens) json[name].push_back(token.content);
}

/// Files may list a token without its id, which it gets behind all others: here it is written down, or it would move.
void number_listed(const Tokenizer& tokenizer, const Json& lists, Json& ids) {
  for (const auto& [key, value] : lists.items()) {
    if (key != "additional_special_tokens" && !key.ends_with("_token")) continue;
    for (const auto& one : value.is_array() ? value : Json::array({value})) {
      const Json content = one.is_object() ? one.value("content", Json()) : one;
      if (!content.is_string() || ids.contains(content.get<std::string>())) continue;
      if (const auto id = tokenizer.id_of(content.get<std::string>())) ids[content.get<std::string>()] = *id;
    }
  }
}

std::string text_of(const Json& json) { return json.dump(2) + "\n"; }

}  // namespace

NamedTexts files_with_tokens(const fs::path& dir, const std::vector<std::string>& tokens) {
  const TokenizerFolder folder(dir);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  const std::vector<NewToken> added = numbered(tokenizer, tokens);
  if (added.empty()) return {};
  NamedTexts out;
  const bool fast = folder.has("tokenizer.json");
  if (fast) {
    const char* const name = "tokenizer.json";
    out.emplace_back(name, tokenizer_json(folder.text(name), folder.path(name).string(), added));
  }
  Json config = folder.has("tokenizer_config.json") ? folder.json("tokenizer_config.json") : Json::object();
  const bool decodes = config.contains("added_tokens_decoder") && config.at("added_tokens_decoder").is_object();
  if (decodes) {
    for (const auto& token : added) config["added_tokens_decoder"][std::to_string(token.id)] = token.entry();
  }
  Json ids = folder.has("added_tokens.json") ? folder.json("added_tokens.json") : Json::object();
  if (!fast && !decodes) number_listed(tokenizer, config, ids);
  list_tokens(config, added);
  out.emplace_back("tokenizer_config.json", text_of(config));
  if (folder.has("special_tokens_map.json")) {
    Json map = folder.json("special_tokens_map.json");
    if (!fast && !decodes) number_listed(tokenizer, map, ids);
    list_tokens(map, added);
    out.emplace_back("special_tokens_map.json", text_of(map));
  }
  if (folder.has("added_tokens.json") || (!fast && !decodes)) {
    for (const auto& token : added) ids[token.content] = token.id;
    out.emplace_back("added_tokens.json", text_of(ids));
  }
  return out;
}

}  // namespace lockstep
