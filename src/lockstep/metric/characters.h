// Text as metrics compare it: code points, lower-cased, and words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Code points of a UTF-8 text; a byte that is no UTF-8 becomes U+FFFD.
std::u32string code_points(std::string_view text);

/// The same, each in lower case, white space in runs as one blank and none at the ends.
std::u32string folded(std::string_view text);

/// Lower-cased words: runs of letters, marks and digits of any script; all else separates. Scripts that write no blanks
/// between words (Han, kana, Thai, Lao, Khmer, Burmese) count by the character.
std::vector<std::u32string> words_of(std::string_view text);

/// Without blanks, tabs and line ends around it.
std::string trimmed(std::string_view text);

/// Fewest insertions, deletions and replacements of code points that turn one text into the other. Source: Levenshtein
/// 1966; time is the product of the lengths.
size_t edit_distance(std::u32string_view a, std::u32string_view b);

}  // namespace lockstep
