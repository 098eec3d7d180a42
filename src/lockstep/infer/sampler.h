// The next token from a row of logits: the largest, or drawn after the usual warpers. What is drawn depends on the
// seed, the row and the position alone, never on the batch or the number of ranks.
//
// Example:
//   const int32_t token = next_token(logits, seen, {.temperature = 0.7, .top_p = 0.9, .seed = 1}, {.row = 5, .position
//   = 12});
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct SamplingOptions {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // 0: off
  double top_p = 1.0;
  double min_p = 0;  // part of the likeliest token's probability that a token needs to be drawn; 0: off
  double repetition_penalty = 1.0;
  int64_t no_repeat_ngram_size = 0;  // tokens of which no row stands there twice; 0: off
  uint64_t seed = 42;
  std::vector<std::string> stop_words;  // behind which an answer ends; they stand in it
  bool skip_special_tokens = false;  // in the text that is made of what was drawn: marks of boxes belong to an answer
};

/// Which draw this is: the row's index in the whole input, and the number of tokens generated before.
struct DrawIndex {
  int64_t row = 0, position = 0;
};

/// `seen`: generated tokens and, where they count, those of the prompt, for what must not be repeated. `logits` is
/// overwritten. Order of warpers: repetition penalty, n-grams, temperature, top_k, top_p, min_p. Source: transformers 5.23
/// generation/logits_process.py. Throws UserError(kNumerics) where NaN is among the logits.
int32_t next_token(std::span<float> logits, std::span<const int32_t> seen, const SamplingOptions& options,
                   DrawIndex draw);

}  // namespace lockstep
