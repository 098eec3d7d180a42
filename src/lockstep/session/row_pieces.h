// Rows of text that are longer than a row may be, cut into several: nothing of a book is lost to --max_length.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/event.h"
#include "lockstep/data/dataset.h"
#include "lockstep/session/job.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {

/// Where the pieces of a text end, in bytes: each of at most `most` tokens by `tokens_of(begin, end)` and not much less, before
/// a blank or a line break where one is near, else between two characters. A single character stands even where it has more.
std::vector<uint64_t> piece_ends(std::string_view text, int64_t most,
                                 const std::function<int64_t(uint64_t begin, uint64_t end)>& tokens_of);

struct SplitOptions {
  int64_t max_length = 0, positions = 0;  // of a row, and of the model; 0: not said
  int64_t bin = 0;                        // tokens of a bin that rows share; 0: there is none
  bool plain = false;  // texts stand as they are: without a chat template. Else token ids alone are cut
  bool all = false;    // all of a row is learnt, so that a question may be cut as its answer is
  int threads = 1;

  /// Tokens that a piece may have. Throws UserError(kUsage) where nothing says it.
  int64_t most() const;
};

struct SplitRows {
  Dataset rows;
  int64_t before = 0, most = 0;
  int64_t uncut = 0;  // that are neither token ids nor text alone: what is too long of them loses its end

  /// What a person should know of it.
  std::vector<std::string> notices() const;
};

/// For --truncation_strategy split: `data` with its texts and token ids cut into pieces that fit; conversations, rows with media
/// and rows that cannot be read stay whole. The same on every rank. Collective.
SplitRows split_long_rows(Job& job, const Dataset& data, const Tokenizer& tokenizer, const SplitOptions& options,
                          const EventBus& events);

}  // namespace lockstep
