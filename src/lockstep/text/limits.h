// What the file of a tokenizer may ask of each text. It comes with a checkpoint of strangers; real ones have three steps,
// literals of one character, and make a text at most three times as long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr size_t kMaxTextSteps = 64;                   // of a normalizer, pre-tokenizer or decoder
inline constexpr size_t kMaxLiteral = 1024;                   // bytes that a step puts in, or an added token has
inline constexpr size_t kMaxPattern = size_t{64} << 10;       // bytes of a regular expression
inline constexpr size_t kMaxGrowth = 64, kFreeGrowth = 4096;  // of a text: times its bytes, and bytes more

/// Throws UserError(kCheckpoint) where a step comes behind `steps` others that are as many as may be.
void refuse_more_steps(size_t steps, const std::string& where);
/// Throws UserError(kCheckpoint) for a longer literal.
const std::string& short_literal(const std::string& literal, const std::string& key, const std::string& where);
/// Throws UserError(kCheckpoint) when a text of `from` bytes has become so many.
void refuse_growth(size_t bytes, size_t from);

}  // namespace lockstep
