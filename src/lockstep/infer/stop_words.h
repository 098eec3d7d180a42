// Where an answer ends besides its stop tokens: behind words that a person names.
//
// Example:
//   if (ends_by_stop_word(tokens, {"Observation:"}, [&](auto ids) { return tokenizer.decode(ids); })) …
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Whether the last of these tokens completes one of the words, in whatever place in its text: asked behind each token.
/// Source: transformers 5.23 generation/stopping_criteria.py StopStringCriteria, of the answer alone.
bool ends_by_stop_word(std::span<const int32_t> tokens, const std::vector<std::string>& words,
                       const std::function<std::string(std::span<const int32_t>)>& text_of);

}  // namespace lockstep
