// The parts of a tokenizer.json, one after another.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lockstep/text/added_tokens.h"
#include "lockstep/text/bpe.h"
#include "lockstep/text/decoder.h"
#include "lockstep/text/normalizer.h"
#include "lockstep/text/post_processor.h"
#include "lockstep/text/pre_tokenizer.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

class JsonSteps {
 public:
  /// Throws UserError(kCheckpoint).
  explicit JsonSteps(TokenizerFile file);

  /// `text` is valid UTF-8.
  std::vector<int32_t> encode(std::string_view text, EncodeOptions options) const;
  const TextFrame& frame() const { return post_processor_.frame(); }
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;
  /// The tokens of ids, in order, without those that do not exist and, if asked, without the special ones.
  std::vector<std::string> tokens(std::span<const int32_t> ids, bool skip_special_tokens) const;
  const Decoder& decoder() const { return decoder_; }

  int32_t max_id() const { return max_id_; }
  std::optional<int32_t> id_of(std::string_view token) const;
  const std::string& token_of(int32_t id) const;
  bool is_special(const std::string& token) const { return special_contents_.contains(token); }

 private:
  void add_tokens(const Json& entries, const std::string& where);
  void encode_span(std::string_view text, bool at_start, bool continues, std::vector<int32_t>& out) const;

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe model_;
  PostProcessor post_processor_;
  Decoder decoder_;
  WordFinder raw_finder_, normalized_finder_;  // added tokens, by where they are searched
  std::unordered_map<std::string, int32_t> added_ids_;
  std::unordered_map<int32_t, std::string> added_contents_;
  std::unordered_set<std::string> special_contents_;
  int32_t max_id_ = -1;
};

}  // namespace lockstep
