// What transformers' Python tokenizers put around a SentencePiece model: added tokens, the tokens that have names, and the
// settings of tokenizer_config.json, special_tokens_map.json and added_tokens.json.
//
// Source: LlamaTokenizer and PreTrainedTokenizer of transformers 4.46 (`use_fast=False`), InternLM2Tokenizer.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/text/added_tokens.h"
#include "lockstep/text/sentencepiece/piece_table.h"
#include "lockstep/text/tokenizer_folder.h"

namespace lockstep {

struct SlowSettings {
  enum class Kind { kLlama, kInternLm2 };
  Kind kind = Kind::kLlama;
  bool legacy = true;            // each text between added tokens gets a space in front, not the whole text alone
  bool add_prefix_space = true;  // without `legacy`: whether the whole text gets one
  bool add_bos = true, add_eos = false;
  bool clean_up_spaces = false;
};

/// tokenizer_config.json; all as it is by default where there is none. Throws UserError(kCheckpoint) for another
/// tokenizer's config, and for settings that would change the ids and are not followed.
SlowSettings read_slow_settings(const TokenizerFolder& folder);

struct SlowTokens {
  std::unordered_map<int32_t, AddedToken> by_id;
  std::unordered_map<std::string, int32_t> ids;           // by content
  std::map<std::string, std::string, std::less<>> named;  // "bos_token" -> "<s>"
  std::unordered_set<std::string> special;                // those with names, and additional_special_tokens
  std::unordered_set<int32_t> special_ids;
  std::unordered_set<std::string> apart;  // decoded by themselves, with spaces around
  int32_t max_id = -1;

  int32_t id_of(const std::string& content, const PieceTable& table) const;
};

/// Throws UserError(kCheckpoint) naming file and token.
SlowTokens read_slow_tokens(const TokenizerFolder& folder, const SlowSettings& settings, const PieceTable& table);

}  // namespace lockstep
