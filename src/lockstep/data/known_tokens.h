// A family's processor for a model that embeds so many tokens: rows of others, and rows of none, are named.
#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/data/processor.h"

namespace lockstep {

/// Rows without a token, and rows with tokens or labels beyond the model's `vocab`, throw UserError(kData); what media fill is
/// not looked at, which some families spell with ids of their own. An error of the inner processor that does not name the
/// row (the tokenizer's, which knows of none) gets it as a frame.
std::unique_ptr<Processor> of_known_tokens(std::unique_ptr<Processor> inner, int64_t vocab);

}  // namespace lockstep
