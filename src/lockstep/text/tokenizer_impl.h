// The parts of a Tokenizer, for tokenizer.cpp and stream_decoder.cpp.
#pragma once

#include <map>
#include <string>
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

struct Tokenizer::Impl {
  explicit Impl(TokenizerFile file);

  /// The tokens of ids, in order, without those that do not exist and, if asked, without the special ones.
  std::vector<std::string> tokens(std::span<const int32_t> ids, bool skip_special_tokens) const;
  void encode_span(std::string_view text, bool at_start, bool continues, std::vector<int32_t>& out) const;

  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  PostProcessor post_processor;
  Decoder decoder;
  WordFinder raw_finder, normalized_finder;  // added tokens, by where they are searched
  std::unordered_map<std::string, int32_t> added_ids;
  std::unordered_map<int32_t, std::string> added_contents;
  std::unordered_set<std::string> special_contents;
  int32_t max_id = -1;
  std::map<std::string, std::string, std::less<>> named;  // "bos_token" -> "<s>"

 private:
  void add_tokens(const Json& entries, const std::string& where);
};

}  // namespace lockstep
