#include "lockstep/text/bpe.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/byte_level.h"
#include "lockstep/text/json_keys.h"
#include "lockstep/text/limits.h"
#include "lockstep/text/utf8.h"

namespace lockstep {
namespace {

constexpr size_t kCachedWordBytes = 64;  // longer words seldom come again
// The table of ids is dense: real files have no gaps, or a few hundred.
constexpr size_t kFreeIds = 1'000'000, kIdsPerToken = 4;

std::string optional_text(const Json& model, const std::string& key, const std::string& where) {
  return model.contains(key) && !model.at(key).is_null() ? text_key(model, key, where) : std::string();
}

}  // namespace

Bpe::Bpe(TokenizerFile& file, bool byte_level)
    : byte_level_(byte_level), merges_(file.merges.size()), cache_(std::make_unique<WordCache>()) {
  const std::string where = file.path + ": model";
  if (!file.rest->contains("model")) throw checkpoint_error(fmt::format("{}: key \"model\" is missing", file.path));
  const Json& model = file.rest->at("model");
  const std::string type = model.is_object() && model.contains("type") ? text_key(model, "type", where) : "BPE";
  if (type != "BPE") throw unsupported(where, type, "BPE");
  read_vocab(file);
  read_settings(model, where);
  read_merges(file);
}

void Bpe::read_vocab(TokenizerFile& file) {
  if (file.vocab.empty()) throw checkpoint_error(fmt::format("{}: model.vocab is missing or empty", file.path));
  int32_t max_id = 0;
  for (const auto& entry : file.vocab) max_id = std::max(max_id, entry.second);
  const size_t largest = kFreeIds + kIdsPerToken * file.vocab.size();
  if (static_cast<size_t>(max_id) > largest) {
    throw checkpoint_error(fmt::format("{}: model.vocab: expected ids up to {} of {} tokens, found {}", file.path,
                                       largest, file.vocab.size(), max_id));
  }
  tokens_.resize(static_cast<size_t>(max_id) + 1);
  for (auto& [token, id] : file.vocab) tokens_[static_cast<size_t>(id)] = std::move(token);
  ids_.reserve(tokens_.size());
  for (const auto& entry : file.vocab) {
    ids_.emplace(tokens_[static_cast<size_t>(entry.second)], entry.second);
  }
}

void Bpe::read_settings(const Json& model, const std::string& where) {
  if (model.contains("dropout") && model.at("dropout").is_number() && model.at("dropout").get<double>() > 0) {
    throw checkpoint_error(fmt::format("{}.dropout: expected null, found {}", where, model.at("dropout").get<double>()),
                           "encoding at random is not supported; set it to null");
  }
  for (const auto& [key, affix] :
       {std::pair("continuing_subword_prefix", &word_prefix_), std::pair("end_of_word_suffix", &word_suffix_)}) {
    *affix = short_literal(optional_text(model, key, where), key, where);
  }
  const std::string unknown = optional_text(model, "unk_token", where);
  if (!unknown.empty()) {
    unknown_ = id_of(unknown);
    if (!unknown_)
      throw checkpoint_error(fmt::format("{}.unk_token: \"{}\" is not in the vocabulary", where, cut_text(unknown)));
  }
  fuse_unknown_ = flag_key(model, "fuse_unk", false, where);
  ignore_merges_ = flag_key(model, "ignore_merges", false, where);
  if (!flag_key(model, "byte_fallback", false, where)) return;
  for (int b = 0; b < 256; ++b) byte_tokens_.push_back(id_of(fmt::format("<0x{:02X}>", b)).value_or(-1));
}

void Bpe::read_merges(const TokenizerFile& file) {
  const auto known = [&](const std::string& token, int32_t rank) {
    const auto id = id_of(token);
    if (!id)
      throw checkpoint_error(
          fmt::format("{}: model.merges: entry {}: \"{}\" is not in the vocabulary", file.path, rank, cut_text(token)));
    return *id;
  };
  int32_t rank = 0;
  for (const auto& [left, right] : file.merges) {
    const int32_t left_id = known(left, rank), right_id = known(right, rank);
    merges_.set(left_id, right_id,
                {rank, known(left + right.substr(std::min(word_prefix_.size(), right.size())), rank)});
    ++rank;
  }
}

std::optional<int32_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string& Bpe::token_of(int32_t id) const {
  static const std::string none;
  return id >= 0 && static_cast<size_t>(id) < tokens_.size() ? tokens_[static_cast<size_t>(id)] : none;
}

void Bpe::tokenize(std::string_view word, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  const bool cached = word.size() <= kCachedWordBytes;
  if (cached && cache_->find(word, out)) return;
  const std::vector<int32_t> ids = byte_level_ ? split_and_merge(bytes_to_alphabet(word)) : split_and_merge(word);
  if (cached) cache_->put(word, ids);
  out.insert(out.end(), ids.begin(), ids.end());
}

std::vector<int32_t> Bpe::split_and_merge(std::string_view word) const {
  if (ignore_merges_) {
    if (const auto whole = id_of(word)) return {*whole};
  }
  std::vector<int32_t> ids = first_symbols(word);
  merge_all(merges_, ids);
  return ids;
}

bool Bpe::add_bytes(std::string_view symbol, std::vector<int32_t>& out) const {
  if (byte_tokens_.empty()) return false;
  const auto token = [this](char byte) { return byte_tokens_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(symbol.begin(), symbol.end(), [&](char byte) { return token(byte) < 0; })) return false;
  for (const char byte : symbol) out.push_back(token(byte));
  return true;
}

// One id a character, before merging. The order of an unknown token and the bytes behind it is Hugging Face's: an
// unknown token is written when the next known character comes.
std::vector<int32_t> Bpe::first_symbols(std::string_view word) const {
  std::vector<int32_t> out;
  out.reserve(word.size());
  bool unknown_waits = false;
  for (size_t i = 0; i < word.size();) {
    const size_t size = utf8_size(word[i]);
    std::string_view symbol = word.substr(i, size);
    std::string dressed;
    if (!word_prefix_.empty() || !word_suffix_.empty()) {
      dressed = (i > 0 ? word_prefix_ : "") + std::string(symbol) + (i + size == word.size() ? word_suffix_ : "");
      symbol = dressed;
    }
    i += size;
    if (const auto id = id_of(symbol)) {
      if (unknown_waits) out.push_back(*unknown_);
      unknown_waits = false;
      out.push_back(*id);
    } else if (!add_bytes(symbol, out) && unknown_) {
      if (unknown_waits && !fuse_unknown_) out.push_back(*unknown_);
      unknown_waits = true;
    }
  }
  if (unknown_waits) out.push_back(*unknown_);
  return out;
}

}  // namespace lockstep
