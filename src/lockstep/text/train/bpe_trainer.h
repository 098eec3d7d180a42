// Trains a small tokenizer from text, complete as files of a Hugging Face folder: what a model that starts from random
// weights needs. Deterministic: the same text and options give the same bytes.
//
// Example:
//   const FreshTokenizer fresh = train_tokenizer(corpus, {.kind = BpeKind::kByteLevel, .vocab_size = 512,
//                                                         .special_tokens = {"<|endoftext|>"}, .eos =
//                                                         "<|endoftext|>"});
//   for (const auto& [name, text] : fresh.files) write_text(dir / name, text);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Bytes with Qwen2's way of cutting words, or characters with byte fallback as in Llama-2.
enum class BpeKind { kByteLevel, kSentencePiece };

struct BpeTrainerOptions {
  BpeKind kind = BpeKind::kByteLevel;
  int64_t vocab_size = 512;  // everything included
  std::vector<std::string>
      special_tokens;         // added behind the vocabulary (SentencePiece has <unk> <s> </s> in front besides)
  std::string bos, eos, pad;  // among the special tokens, or "" for none; bos is put before every text
};

struct FreshTokenizer {
  std::vector<std::pair<std::string, std::string>> files;  // name, contents: tokenizer.json, tokenizer_config.json, …
  int64_t size = 0;                                        // tokens, at most the vocab_size asked for
};

/// Throws UserError(kUsage) when vocab_size has no room for bytes and special tokens (numbers).
FreshTokenizer train_tokenizer(std::string_view corpus, const BpeTrainerOptions& options);

/// Some forty lines of plain English, for when no corpus is given.
std::string_view default_corpus();

/// The text of a corpus file; of .jsonl and .json rows every string but paths, roles and names. Throws
/// UserError(kData).
std::string read_corpus(const std::string& path);

}  // namespace lockstep
