#include "lockstep/text/sentencepiece/slow_tokens.h"

#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/limits.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// In the order in which those that have no id get one.
constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};
constexpr size_t kFreeIds = 1'000'000, kIdsPerToken = 4;  // as of a vocabulary: real files have no gaps, or small ones

/// A token as a config names it: its text alone leaves what is known of it as it is.
struct NamedToken {
  AddedToken token;
  bool is_text = false;
};

AddedToken special_token(const std::string& content, const std::string& where) {
  return {.content = short_literal(content, "content", where), .normalized = false, .special = true};
}

class Reader {
 public:
  Reader(const TokenizerFolder& folder, const SlowSettings& settings, const PieceTable& table)
      : folder_(folder), settings_(settings), table_(table), where_(folder.path("tokenizer_config.json").string()) {
    if (folder.has("tokenizer_config.json")) config_ = folder.json("tokenizer_config.json");
    if (config_.contains("added_tokens_decoder")) {
      read_decoder(config_.at("added_tokens_decoder"));
      return;
    }
    read_special_map("special_tokens_map.json");
    read_added("added_tokens.json");
  }

  SlowTokens take() {
    // Of two texts with one id the later is the token.
    std::erase_if(out_.ids, [&](const auto& entry) { return out_.by_id.at(entry.second).content != entry.first; });
    for (const char* name : kNames) name_token(name);
    std::vector<NamedToken> special;
    for (const char* name : kNames) {
      if (const auto found = named_.find(name); found != named_.end()) special.push_back(found->second);
    }
    for (const NamedToken& token : additional()) special.push_back(token);
    give_ids(special);
    for (const NamedToken& named : special) {
      const std::string& content = named.token.content;
      if (content.empty()) continue;
      out_.special.insert(content);
      out_.special_ids.insert(out_.id_of(content, table_));
    }
    for (const auto& [content, id] : out_.ids) {
      if (!out_.special.contains(content)) out_.apart.insert(content);
    }
    for (const NamedToken& named : additional()) {
      if (out_.id_of(named.token.content, table_) >= table_.size()) out_.apart.insert(named.token.content);
    }
    for (const auto& [name, named] : named_) out_.named.emplace(name, named.token.content);
    out_.max_id = table_.size() - 1;
    for (const auto& [id, token] : out_.by_id) out_.max_id = std::max(out_.max_id, id);
    return std::move(out_);
  }

 private:
  void add(int32_t id, AddedToken token, size_t num_added, const std::string& where) {
    const size_t largest = kFreeIds + kIdsPerToken * (static_cast<size_t>(table_.size()) + num_added);
    if (id < 0 || static_cast<size_t>(id) > largest) {
      throw checkpoint_error(
          fmt::format("{}: \"{}\": expected an id up to {} of {} pieces and {} added tokens, found {}", where,
                      cut_text(token.content), largest, table_.size(), num_added, id));
    }
    token.id = id;
    const auto earlier = out_.by_id.find(id);
    if (earlier != out_.by_id.end() && earlier->second.content != token.content)
      out_.ids.erase(earlier->second.content);
    out_.ids.insert_or_assign(token.content, id);
    out_.by_id.insert_or_assign(id, std::move(token));
  }

  void read_decoder(const Json& decoder) {
    const std::string where = where_ + ": added_tokens_decoder";
    if (!decoder.is_object()) {
      throw checkpoint_error(fmt::format("{}: expected an object, found {}", where, decoder.type_name()));
    }
    for (const auto& [key, entry] : decoder.items()) {
      int32_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < 0) {
        throw checkpoint_error(fmt::format("{}: expected the id of a token, found \"{}\"", where, cut_text(key)));
      }
      AddedToken token = read_added_token(entry, fmt::format("{}: \"{}\"", where, cut_text(key)));
      if (!token.content.empty()) add(id, std::move(token), decoder.size(), where);
    }
  }

  void read_special_map(const char* name) {
    if (!folder_.has(name)) return;
    const Json map = folder_.json(name);
    const fs::path path = folder_.path(name);
    if (!map.is_object()) {
      throw checkpoint_error(fmt::format("{}: expected an object, found {}", path.string(), map.type_name()));
    }
    for (const auto& [key, value] : map.items()) {
      if (key != "additional_special_tokens" || !value.is_array()) {
        config_[key] = value;
        continue;
      }
      Json all = config_.contains(key) && config_.at(key).is_array() ? config_.at(key) : Json::array();
      for (const Json& token : value) all.push_back(token);
      config_[key] = std::move(all);
    }
    where_ = path.string();
  }

  void read_added(const char* name) {
    if (!folder_.has(name)) return;
    const Json map = folder_.json(name);
    const fs::path path = folder_.path(name);
    if (!map.is_object()) {
      throw checkpoint_error(
          fmt::format("{}: expected an object of token to id, found {}", path.string(), map.type_name()));
    }
    for (const auto& [content, id] : map.items()) {
      const std::string where = fmt::format("{}: \"{}\"", path.string(), cut_text(content));
      AddedToken token{.content = short_literal(content, cut_text(content), path.string())};
      if (!content.empty()) add(lockstep::id_of(id, where), std::move(token), map.size(), path.string());
    }
  }

  NamedToken read_named(const Json& value, const std::string& where) const {
    if (value.is_object()) {
      AddedToken token = read_added_token(value, where);
      token.special = true;
      return {std::move(token), false};
    }
    if (!value.is_string()) {
      throw checkpoint_error(fmt::format("{}: expected a string or an object, found {}", where, value.type_name()));
    }
    return {special_token(value.get<std::string>(), where), true};
  }

  // A name that the files leave out has the token that the tokenizer's class gives it; null takes it away.
  void name_token(const std::string& name) {
    const std::string where = where_ + ": " + name;
    const bool is_llama = settings_.kind == SlowSettings::Kind::kLlama;
    const auto found = config_.find(name);
    NamedToken named;
    if (found != config_.end()) {
      if (found->is_null()) return;
      named = read_named(*found, where);
      const auto known = out_.ids.find(named.token.content);
      if (known != out_.ids.end()) named = {out_.by_id.at(known->second), false};
    } else {
      const std::string content = name == "bos_token"                ? "<s>"
                                  : name == "eos_token"              ? "</s>"
                                  : name == "unk_token"              ? "<unk>"
                                  : name == "pad_token" && !is_llama ? "</s>"
                                                                     : "";
      if (content.empty()) return;
      named = {special_token(content, where), true};
    }
    if (is_llama && name != "sep_token" && name != "cls_token" && name != "mask_token") named.is_text = false;
    if (!named.token.content.empty()) named_.emplace(name, std::move(named));
  }

  std::vector<NamedToken> additional() const {
    std::vector<NamedToken> out;
    const auto found = config_.find("additional_special_tokens");
    if (found == config_.end() || found->is_null()) return out;
    const std::string where = where_ + ": additional_special_tokens";
    if (!found->is_array()) {
      throw checkpoint_error(fmt::format("{}: expected a list, found {}", where, found->type_name()));
    }
    for (const Json& token : *found) out.push_back(read_named(token, where));
    return out;
  }

  // A token that is no piece gets the next free number: as many as there are different tokens.
  void give_ids(const std::vector<NamedToken>& special) {
    std::unordered_map<std::string_view, int32_t> vocabulary;
    for (int32_t id = 0; id < table_.size(); ++id) {
      const auto added = out_.by_id.find(id);
      vocabulary[added != out_.by_id.end() ? std::string_view(added->second.content) : table_.at(id).text] = id;
    }
    for (const auto& [content, id] : out_.ids) vocabulary[content] = id;
    auto next = static_cast<int32_t>(vocabulary.size());
    std::vector<std::pair<int32_t, AddedToken>> fresh;
    for (const NamedToken& named : special) {
      const std::string& content = named.token.content;
      if (content.empty() || (named.is_text && out_.ids.contains(content))) continue;
      const auto [place, is_new] = vocabulary.emplace(content, next);
      if (is_new) refuse_taken(content, next++);
      fresh.emplace_back(place->second, named.token);
    }
    for (auto& [id, token] : fresh) {
      token.special = true;
      add(id, std::move(token), fresh.size(), where_);
    }
  }

  // Files with gaps among their ids: transformers would give two tokens one id.
  void refuse_taken(const std::string& content, int32_t id) const {
    const auto found = out_.by_id.find(id);
    if (found == out_.by_id.end()) return;
    throw checkpoint_error(fmt::format("{}: \"{}\" has no id, and the next, {}, is the one of \"{}\"", where_,
                                       cut_text(content), id, cut_text(found->second.content)),
                           "name its id in added_tokens_decoder");
  }

  const TokenizerFolder& folder_;
  SlowSettings settings_;
  const PieceTable& table_;
  std::string where_;
  Json config_ = Json::object();
  std::map<std::string, NamedToken> named_;
  SlowTokens out_;
};

}  // namespace

int32_t SlowTokens::id_of(const std::string& content, const PieceTable& table) const {
  const auto found = ids.find(content);
  return found != ids.end() ? found->second : table.id_of(content);
}

SlowTokens read_slow_tokens(const TokenizerFolder& folder, const SlowSettings& settings, const PieceTable& table) {
  return Reader(folder, settings, table).take();
}

}  // namespace lockstep
