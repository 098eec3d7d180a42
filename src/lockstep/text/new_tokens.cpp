#include "lockstep/text/new_tokens.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_map>
#include <unordered_set>
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
constexpr int64_t kMostTokens = int64_t{1} << 24;

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

/// The object in a file of the folder; an empty one where there is none.
Json object_of(const TokenizerFolder& folder, const char* name) {
  if (!folder.has(name)) return Json::object();
  Json json = folder.json(name);
  if (json.is_object()) return json;
  throw checkpoint_error(
      fmt::format("{}: expected an object, found {}", folder.path(name).string(), cut_text(json.dump())));
}

/// What stands beside a tokenizer, and is changed with it.
struct Beside {
  Json config, map, ids;  // tokenizer_config.json, special_tokens_map.json, added_tokens.json

  explicit Beside(const TokenizerFolder& folder)
      : config(object_of(folder, "tokenizer_config.json")),
        map(object_of(folder, "special_tokens_map.json")),
        ids(object_of(folder, "added_tokens.json")) {}

  bool decodes() const {
    return config.contains("added_tokens_decoder") && config.at("added_tokens_decoder").is_object();
  }

  /// Behind all ids that any of the files has given away.
  int32_t next_id(const Tokenizer& tokenizer) const {
    int64_t next = tokenizer.vocab_size();
    for (const auto& [content, id] : ids.items()) {
      if (id.is_number_integer()) next = std::max(next, std::min(id.get<int64_t>(), kMostTokens) + 1);
    }
    const Json none = Json::object();
    const Json& decoder = decodes() ? config.at("added_tokens_decoder") : none;
    for (const auto& [id, token] : decoder.items()) {
      int64_t number = -1;
      std::from_chars(id.data(), id.data() + id.size(), number);
      next = std::max(next, std::min(number, kMostTokens) + 1);
    }
    if (next <= kMostTokens) return static_cast<int32_t>(next);
    throw checkpoint_error(fmt::format(
        "added_tokens.json, tokenizer_config.json: expected ids of tokens up to {}, found {}", kMostTokens, next - 1));
  }
};

std::vector<NewToken> numbered(const Tokenizer& tokenizer, int32_t next, const std::vector<std::string>& tokens) {
  std::unordered_set<std::string> seen;
  std::vector<NewToken> out;
  for (const auto& token : tokens) {
    check_text(token);
    if (is_special_of(tokenizer, token) || !seen.insert(token).second) continue;
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
      while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      const size_t colon = std::min(text.size() - 1, text.find_first_not_of(" \t\r\n", at + 1));
      if (depth == 1 && begin == 0 && text[colon] == ':' && text.substr(from, at + 1 - from) == wanted)
        begin = colon + 1;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    const bool closes = c == ']' || c == '}';
    if (begin != 0 && depth == 1 && (c == ',' || closes)) return std::pair{begin, at};
    if (closes && --depth == 0) break;
  }
  return std::nullopt;
}

/// tokenizer.json with more entries, all else byte for byte: its vocabulary is large.
std::string tokenizer_json(std::string text, const std::string& where, const std::vector<NewToken>& tokens) {
  const auto place = value_of(text, "added_tokens");
  Json list = Json::array();
  if (place) list = parse_json(std::string_view(text).substr(place->first, place->second - place->first), where);
  if (!list.is_array()) list = Json::array();
  std::unordered_map<std::string, size_t> known;  // where a token stands: ids follow the order of the list
  for (size_t i = 0; i < list.size(); ++i) {
    const Json content = list[i].is_object() ? list[i].value("content", Json()) : Json();
    if (content.is_string()) known.emplace(content.get<std::string>(), i);
  }
  for (const auto& token : tokens) {
    Json entry = {{"id", token.id}};
    entry.update(token.entry());
    const auto at = known.find(token.content);
    if (at != known.end()) {
      list[at->second] = std::move(entry);
    } else {
      list.push_back(std::move(entry));
    }
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

/// Where ids of the vocabulary have gaps, readers of these files number a token by how many there are: it may get another's id.
void check_read_back(const Tokenizer& before, const Tokenizer& after, const std::vector<NewToken>& added,
                     const fs::path& dir) {
  const auto refuse = [&](const std::string& content, int32_t id, const std::string& found) {
    throw checkpoint_error(
        fmt::format("--new_special_tokens: {}: expected \"{}\" to have the id {} then, found {}", dir.string(),
                    cut_text(content), id, found),
        "ids of the tokenizer have gaps, or belong to two tokens: number them one after the other first");
  };
  for (const auto& token : added) {
    const auto id = after.id_of(token.content);
    if (id != token.id) refuse(token.content, token.id, id ? std::to_string(*id) : "none");
  }
  for (int32_t id = 0; id < static_cast<int32_t>(before.vocab_size()); ++id) {
    const std::string now = after.token_of(id);
    if (now != before.token_of(id)) refuse(before.token_of(id), id, fmt::format("\"{}\" there", cut_text(now)));
  }
}

}  // namespace

NamedTexts files_with_tokens(const fs::path& dir, const std::vector<std::string>& tokens) {
  if (tokens.empty()) return {};
  const TokenizerFolder folder(dir);
  const Tokenizer tokenizer = Tokenizer::load(folder);
  Beside beside(folder);
  const std::vector<NewToken> added = numbered(tokenizer, beside.next_id(tokenizer), tokens);
  if (added.empty()) return {};
  NamedTexts out;
  const bool fast = folder.has("tokenizer.json"), numbers = !fast && !beside.decodes();
  if (fast) {
    const char* const name = "tokenizer.json";
    out.emplace_back(name, tokenizer_json(folder.text(name), folder.path(name).string(), added));
  }
  if (numbers) number_listed(tokenizer, beside.config, beside.ids);
  if (numbers) number_listed(tokenizer, beside.map, beside.ids);
  for (const auto& token : added) {
    if (beside.decodes()) beside.config["added_tokens_decoder"][std::to_string(token.id)] = token.entry();
    beside.ids[token.content] = token.id;
  }
  list_tokens(beside.config, added);
  list_tokens(beside.map, added);
  out.emplace_back("tokenizer_config.json", text_of(beside.config));
  if (folder.has("special_tokens_map.json")) out.emplace_back("special_tokens_map.json", text_of(beside.map));
  if (numbers || folder.has("added_tokens.json")) out.emplace_back("added_tokens.json", text_of(beside.ids));
  check_read_back(tokenizer, Tokenizer::load({dir, out}), added, dir);
  return out;
}

}  // namespace lockstep
