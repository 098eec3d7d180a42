// How well an answer fits the accepted ones: 0 (not at all) to 1, the best over the references. Pure; texts are UTF-8.
//
// Example:
//   anls("Paris.", {"paris", "Paris, France"});   // 0.833: one of six characters is too much
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using References = std::vector<std::string>;

/// 1 when the answer equals a reference, white space at the ends aside; case and punctuation count.
double exact_match(std::string_view answer, const References& references);

/// Average normalised Levenshtein similarity of one answer: 1 - d / max(length), and 0 where that is at most 0.5; in
/// code points, lower-cased, white space in runs as one blank. Source: Biten et al. 2019, "Scene Text Visual Question
/// Answering", section 5.
double anls(std::string_view answer, const References& references);

/// F-measure (beta 1) of the longest common subsequence of words: 2PR / (P + R), P and R its share of the answer's and
/// of the reference's words. Words are lower-cased runs of letters and digits, not stemmed; text without blanks between
/// words (Chinese, Japanese, Thai) counts by the character. Source: Lin 2004, "ROUGE: a package for automatic
/// evaluation of summaries", section 3.
double rouge_l(std::string_view answer, const References& references);

/// F-measure (beta 1) of the runs of one word, or of two, that both have, each as often as the rarer side has it; words as
/// for rouge_l. Source: Lin 2004, section 2.
double rouge_1(std::string_view answer, const References& references);
double rouge_2(std::string_view answer, const References& references);

/// BLEU of runs of 1 to 4 code points, as ms-swift and LLaMA-Factory count it: the geometric mean of their clipped
/// precisions, times exp(1 - reference / answer) where the answer is shorter; a run length that never fits counts as half
/// an occurrence, the next such as a quarter; no single code point in common: 0. Case and white space count. Source: Papineni
/// et al. 2002, "BLEU", section 2; smoothing: Chen and Cherry 2014, method 3.
double bleu_4(std::string_view answer, const References& references);

}  // namespace lockstep
