// What `lockstep init` writes: config, random weights, tokenizer, processor and chat template of a fresh model.
//
// Example:
//   const InitReport report = init_checkpoint({.family = "llava", .size = "demo", .output_dir = "m", .seed = 42});
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lockstep/tensor/spec.h"

namespace lockstep {

struct InitOptions {
  std::string family;
  std::string size = "tiny";
  std::filesystem::path output_dir;
  uint64_t seed = 42;
  Dtype dtype = Dtype::kBF16;
  std::string corpus;      // file whose text the tokenizer learns from; "" = a built-in one
  int64_t vocab_size = 0;  // tokens at most; 0 = by size
};

struct InitReport {
  int64_t parameters = 0, bytes = 0, tokens = 0, vocab_size = 0;  // vocab_size: rows of the embedding, a multiple of 64
};

/// Writes to a temporary name and renames. The same options give the same bytes on every machine. Throws
/// UserError(kUsage) for an unknown family or size or a folder that is not empty, UserError(kCheckpoint) when it cannot
/// be written.
InitReport init_checkpoint(const InitOptions& options);

}  // namespace lockstep
