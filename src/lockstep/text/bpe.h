// The byte-pair model of a tokenizer.json: one word to ids. Safe to share between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/text/merge_table.h"
#include "lockstep/text/tokenizer_file.h"
#include "lockstep/text/word_cache.h"

namespace lockstep {

class Bpe {
 public:
  /// Takes `file`'s tables. `byte_level`: words are raw bytes, to be spelled in the byte-level alphabet.
  /// Throws UserError(kCheckpoint) naming file and key.
  Bpe(TokenizerFile& file, bool byte_level);

  void tokenize(std::string_view word, std::vector<int32_t>& out) const;

  size_t num_tokens() const { return ids_.size(); }
  int32_t max_id() const { return static_cast<int32_t>(tokens_.size()) - 1; }
  std::optional<int32_t> id_of(std::string_view token) const;
  /// "" for an id that does not exist.
  const std::string& token_of(int32_t id) const;

 private:
  void read_vocab(TokenizerFile& file);
  void read_merges(const TokenizerFile& file);
  void read_settings(const Json& model, const std::string& where);
  std::vector<int32_t> split_and_merge(std::string_view word) const;
  std::vector<int32_t> first_symbols(std::string_view word) const;
  bool add_bytes(std::string_view symbol, std::vector<int32_t>& out) const;

  bool byte_level_;
  std::vector<std::string> tokens_;                    // by id
  std::unordered_map<std::string_view, int32_t> ids_;  // keys point into tokens_
  MergeTable merges_;
  std::string word_prefix_, word_suffix_;  // continuing_subword_prefix, end_of_word_suffix
  std::optional<int32_t> unknown_;
  std::vector<int32_t> byte_tokens_;  // <0x00>…<0xFF>, -1 where missing; empty without byte_fallback
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::unique_ptr<WordCache> cache_;
};

}  // namespace lockstep
