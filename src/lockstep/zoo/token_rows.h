// Rows of a model's tables for the tokens that its place gives its tokenizer.
#pragma once

#include "lockstep/model/hf_config.h"
#include "lockstep/model/weights.h"

namespace lockstep {

struct Family;

/// The config with a vocabulary that has a row for each of place().new_tokens; as it is where it has them. They are as many as
/// place().token_rows says, where those are enough, else rounded up to a multiple of 128. Source: ms-swift 4.6,
/// model/register.py. Throws UserError(kCheckpoint): where config.json says the size of the vocabulary cannot be told.
HfConfig with_token_rows(const HfConfig& config);
/// Gives the tables of such a config's folder the rows that they have not, or takes away what is too much.
void add_token_rows(Weights& weights, const Family& family, const HfConfig& config);

}  // namespace lockstep
