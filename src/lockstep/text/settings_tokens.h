// Tokens that the files beside a tokenizer's own name and add: tokenizer_config.json, special_tokens_map.json, added_tokens.json.
#pragma once

#include <map>
#include <string>

#include "lockstep/text/tokenizer_file.h"
#include "lockstep/text/tokenizer_folder.h"

namespace lockstep {

/// "bos_token" -> "<s>", "image_token" -> "<image>". special_tokens_map.json has the last word where tokenizer_config.json has
/// no added_tokens_decoder, and else says what that leaves out. Source: transformers 5.23 tokenization_utils_base.py.
using NamedTokens = std::map<std::string, std::string, std::less<>>;
NamedTokens named_tokens(const TokenizerFolder& folder);

/// Puts what the files name, and the file's own list lacks, behind it: tokens of added_tokens_decoder (or added_tokens.json where
/// there is none), named ones, extra ones. Where both have a token, flags of added_tokens_decoder count.
/// Throws UserError(kCheckpoint).
void add_tokens_of_settings(const TokenizerFolder& folder, TokenizerFile& file);

}  // namespace lockstep
