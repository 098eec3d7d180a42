// Qwen2 checkpoints saved without a tokenizer.json: vocab.json, merges.txt and tokenizer_config.json hold the same
// facts.
#pragma once

#include "lockstep/text/tokenizer_file.h"

namespace lockstep {

bool is_legacy_qwen2(const TokenizerFolder& folder);

/// Throws UserError(kCheckpoint).
TokenizerFile read_legacy_qwen2(const TokenizerFolder& folder);

}  // namespace lockstep
