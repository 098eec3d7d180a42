// What a tokenizer is made of, as read from disk: the large tables apart from the small settings.
//
// A vocabulary of 150 thousand words as JSON values would take seconds, so vocab and merges never become values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"
#include "lockstep/text/tokenizer_folder.h"

namespace lockstep {

struct TokenizerFile {
  std::string path;                                         // named in errors
  std::vector<std::pair<std::string, int32_t>> vocab;       // model.vocab
  std::vector<std::pair<std::string, std::string>> merges;  // model.merges, best first
  std::unique_ptr<Json> rest;                               // the other keys
};

/// Reads tokenizer.json or, for a Qwen2 checkpoint without one, vocab.json, merges.txt and tokenizer_config.json.
/// Throws UserError(kCheckpoint).
TokenizerFile read_tokenizer_file(const TokenizerFolder& folder);

}  // namespace lockstep
