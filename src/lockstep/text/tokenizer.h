// A tokenizer of the BPE families: a tokenizer.json, byte-level (Qwen2, Llama-3) or SentencePiece-style with byte fallback
// (Llama-2), with the ids of the Hugging Face `tokenizers` library; or a SentencePiece tokenizer.model, with the ids of
// transformers' Python tokenizers. Immutable after loading; safe to share between threads.
//
// Example:
//   const Tokenizer tokenizer = Tokenizer::load(dir);            // tokenizer.json, or else tokenizer.model
//   std::vector<int32_t> ids = tokenizer.encode("Hello", {.add_special_tokens = true});
//   StreamDecoder stream(tokenizer);
//   for (int32_t id : generated) std::cout << stream.push(id);   // never prints half a character
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/tokenizer_folder.h"

namespace lockstep {

class PieceStream;

struct EncodeOptions {
  bool add_special_tokens = false;  // run the post-processor (BOS, …)
  bool continues = false;  // the text continues an earlier one: a normaliser's or Metaspace's leading prefix is not put
};

/// The special tokens that stand around a text, as the post-processor has them.
struct TextFrame {
  std::vector<int32_t> before, after;

  std::vector<int32_t> around(std::vector<int32_t> ids) const {
    ids.insert(ids.begin(), before.begin(), before.end());
    ids.insert(ids.end(), after.begin(), after.end());
    return ids;
  }
};

class Tokenizer {
 public:
  /// Reads tokenizer.json or, where there is none, tokenizer.model. Throws UserError(kCheckpoint) naming file, key and what is supported.
  static Tokenizer load(const TokenizerFolder& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;
  /// What add_special_tokens puts around a text.
  const TextFrame& frame() const;
  /// Invalid UTF-8 becomes U+FFFD, as Hugging Face does it.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

  int64_t vocab_size() const;                                  // largest id + 1, added tokens included
  std::optional<int32_t> id_of(std::string_view token) const;  // the token as stored in the vocabulary
  std::string token_of(int32_t id) const;                      // "" for an id that does not exist
  bool is_special(int32_t id) const;
  std::optional<std::string> special(std::string_view name) const;  // "bos_token", "eos_token", …
  /// All of them: what chat templates may write by name.
  const std::map<std::string, std::string, std::less<>>& named() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Decodes token by token for a terminal. What push and finish return adds up to decode() of all ids, to the byte: what
/// a later token may still change (a part of a character, a run of byte tokens) is held back until it is certain.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  std::string push(int32_t id);  // the new text that is now certain
  std::string finish();          // what was held back, invalid bytes as U+FFFD; then a new text may begin

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  bool at_start_ = true;                 // no text has been returned, so the leading-space rule still applies
  std::vector<int32_t> ids_;             // not all of their text is certain
  size_t printed_bytes_ = 0;             // of the text of ids_
  std::unique_ptr<PieceStream> pieces_;  // of a tokenizer.model, in place of the above
};

}  // namespace lockstep
