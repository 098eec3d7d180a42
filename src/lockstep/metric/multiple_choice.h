// The letter of a multiple choice question: as the row expects it, and as an answer gives it.
#pragma once

#include <optional>
#include <string_view>

#include "lockstep/metric/answer_scores.h"

namespace lockstep {

/// The choice that a text is: one Latin letter, in any case, perhaps in brackets, bold or with a mark behind it ("B",
/// "(B)", "b.", "**B**"); upper case. Nothing for any other text.
std::optional<char> choice_alone(std::string_view text);

/// The choice in an answer, by the first of these rules that finds one:
/// 1. the answer, or its first line, is a choice alone;
/// 2. the last letter announced: "answer", "option" or "choice", then perhaps "is" or ":", and the letter ("The answer
///    is (B)"); in Chinese 答案 or 选, then perhaps 是, 为 or ：;
/// 3. the answer begins with a capital, or a letter in brackets, and a mark: "B. A cat", "(b) a cat", "B: a cat";
/// 4. all capitals that stand alone are the same letter ("I choose B"); "A" and "I" before a lower-case word (but is,
/// or, and)
///    are words.
/// Nothing when none does: such an answer is wrong.
std::optional<char> choice_in_answer(std::string_view answer);

/// 1 when the answer's choice is that of a reference. Defined where some reference is a choice alone.
double multiple_choice(std::string_view answer, const References& references);

}  // namespace lockstep
