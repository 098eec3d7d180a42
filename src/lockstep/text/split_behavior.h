// What a splitting pre-tokenizer does with its matches: the five behaviours of Hugging Face `tokenizers`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/text/regex.h"

namespace lockstep {

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// "Removed", "Isolated", … Throws UserError(kCheckpoint) naming `where`.
SplitBehavior split_behavior(const std::string& name, const std::string& where);

/// The parts of a text of `size` bytes, cut at `matches` (ascending); `invert` swaps matches and the rest.
std::vector<ByteRange> split_ranges(size_t size, const std::vector<ByteRange>& matches, SplitBehavior behavior,
                                    bool invert);

}  // namespace lockstep
