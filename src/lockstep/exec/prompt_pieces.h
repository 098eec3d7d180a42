// A prompt is read in pieces, each a part of its pass: where they end follows from the prompt alone, so that rows which begin
// alike have pieces with the same bits, and one may take over what another has read (infer/prompt_cache.h).
//
// Example:
//   const auto ends = piece_ends(tokens, media_end(row));
//   auto parts = pieces_of(batch.flow, {.logits = LogitsWanted::kLast, .cache = &cache, .slot = 3}, batch.modalities, ends);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/exec/executor.h"

namespace lockstep {

/// Tokens up to the last that media fill; 0: there are none.
int64_t media_end(const Features& row);

/// Where the pieces of a prompt end, its own end the last: behind its media, and after each 512 tokens of text from there or
/// from its beginning.
std::vector<int64_t> piece_ends(int64_t tokens, int64_t media_end);

/// The pieces of a row's prompt behind its first `begin` tokens, which its slot holds. `prompt`: of a batch of that row alone;
/// what it has of media goes to the first piece. `context`: of the last; the others give no logits.
std::vector<SubBatch> pieces_of(const Flow& prompt, const Context& context, Modalities here,
                                std::span<const int64_t> ends, int64_t begin = 0);

}  // namespace lockstep
