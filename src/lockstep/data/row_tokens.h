// Rows that are token ids already: {"input_ids": [...], "labels": [...]}. Labels stand at their own position, -100 is
// ignored; without labels every token is a target.
#pragma once

#include <string>

#include "lockstep/base/json.h"
#include "lockstep/data/features.h"
#include "lockstep/data/processor.h"

namespace lockstep {

/// Whether the row holds token ids.
bool is_token_row(const Json& row);
/// Throws UserError(kData) naming row, field, expected and found.
void read_token_row(const Json& row, const std::string& where, Sample& sample);
/// The features of such a sample. Throws UserError(kData) when it is longer than max_length and may not be cut.
Features token_row_features(const Sample& sample, const ProcessOptions& options);

}  // namespace lockstep
