// A tokenizer of a `tokenizer.model`: added tokens are found in the text first, a SentencePiece model cuts what stands
// between them. Ids and texts are those of transformers' Python tokenizers (slow_tokens.h). Immutable after loading.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/sentencepiece/piece_model.h"
#include "lockstep/text/sentencepiece/slow_tokens.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

/// Whether the folder's tokenizer is a `tokenizer.model`; a tokenizer.json goes before it.
bool has_piece_model(const TokenizerFolder& folder);

class PieceSteps {
 public:
  /// Throws UserError(kCheckpoint).
  explicit PieceSteps(const TokenizerFolder& folder);

  /// `text` is valid UTF-8.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const;
  const TextFrame& frame() const { return frame_; }
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  int32_t max_id() const { return tokens_.max_id; }
  std::optional<int32_t> id_of(std::string_view token) const;
  const std::string& token_of(int32_t id) const;  // "" for an id that does not exist
  bool is_special(const std::string& token) const { return tokens_.special.contains(token); }

  const PieceModel& model() const { return model_; }
  const SlowTokens& tokens() const { return tokens_; }
  const SlowSettings& settings() const { return settings_; }

 private:
  /// Parts of a text; those that are made anew are kept in `made`.
  struct Parts {
    std::vector<std::string_view> list;
    std::deque<std::string> made;
  };
  Parts split(std::string_view text) const;
  const AddedToken* added(std::string_view text) const;
  void encode_part(std::string_view text, bool has_prefix, PieceIds& out) const;
  bool begins_with_lone_space(const PieceIds& pieces) const;

  SlowSettings settings_;
  PieceModel model_;
  SlowTokens tokens_;
  WordFinder finder_;
  size_t longest_added_ = 0;   // bytes
  size_t unknown_pieces_ = 0;  // that the text of the unknown token is cut into
  std::vector<int32_t>
      ids_of_pieces_;  // an added token may have another id than the piece of its text; empty: none has
  TextFrame frame_;
};

}  // namespace lockstep
