// add_bos_token and add_eos_token of tokenizer_config.json where they say other than the tokenizer's own post_processor.
//
// Example:
//   if (const std::string words = unheeded_ends(folder, tokenizer); !words.empty()) notices.push_back(words);
#pragma once

#include <string>

#include "lockstep/text/tokenizer.h"
#include "lockstep/text/tokenizer_folder.h"

namespace lockstep {

/// A sentence for people: the post_processor of tokenizer.json counts, as with transformers 5, where the LlamaTokenizerFast of
/// transformers 4 made another of the settings. "": both say the same, or there is no tokenizer.json of a Llama tokenizer.
/// Source: transformers 5.23 tokenization_utils_base.py _from_pretrained; 4.57 tokenization_llama_fast.py update_post_processor.
std::string unheeded_ends(const TokenizerFolder& folder, const Tokenizer& tokenizer);

}  // namespace lockstep
