#include "lockstep/metric/answer_scores.h"

#include <algorithm>
#include <unordered_map>

#include "lockstep/metric/characters.h"

namespace lockstep {
namespace {

constexpr double kAnlsThreshold = 0.5;

template <typename Score>
double best_over(const References& references, const Score& score) {
  double best = 0;
  for (const auto& reference : references) best = std::max(best, score(reference));
  return best;
}

/// Length of the longest common subsequence, 64 words at once: a set bit of `row` marks a place where it does not grow.
/// Source: Hyyrö 2004, "Bit-parallel LCS-length computation revisited".
size_t common_subsequence(const std::vector<std::u32string>& a, const std::vector<std::u32string>& b) {
  const size_t blocks = (b.size() + 63) / 64;
  std::unordered_map<std::u32string, std::vector<uint64_t>> places;
  for (size_t j = 0; j < b.size(); ++j) {
    auto& bits = places[b[j]];
    bits.resize(blocks);
    bits[j / 64] |= uint64_t{1} << (j % 64);
  }
  std::vector<uint64_t> row(blocks, ~uint64_t{0});
  for (const auto& word : a) {
    const auto found = places.find(word);
    if (found == places.end()) continue;
    uint64_t carry = 0;
    for (size_t k = 0; k < blocks; ++k) {
      const uint64_t matched = row[k] & found->second[k];
      const uint64_t sum = row[k] + matched;
      const uint64_t with_carry = sum + carry;
      carry = (sum < row[k] ? 1U : 0U) | (with_carry < sum ? 1U : 0U);
      row[k] = with_carry | (row[k] & ~found->second[k]);
    }
  }
  size_t length = 0;
  for (size_t j = 0; j < b.size(); ++j) length += (row[j / 64] >> (j % 64)) & 1 ? 0 : 1;
  return length;
}

}  // namespace

double exact_match(std::string_view answer, const References& references) {
  const std::string mine = trimmed(answer);
  return best_over(references, [&](const std::string& reference) { return mine == trimmed(reference) ? 1.0 : 0.0; });
}

double anls(std::string_view answer, const References& references) {
  const std::u32string mine = folded(answer);
  return best_over(references, [&](const std::string& reference) {
    const std::u32string theirs = folded(reference);
    const auto [shorter, longer] = std::minmax({mine.size(), theirs.size()});
    if (longer == 0) return 1.0;
    if (2 * shorter <= longer) return 0.0;  // the difference in length alone is a distance of a half or more
    const double similarity = 1 - static_cast<double>(edit_distance(mine, theirs)) / static_cast<double>(longer);
    return similarity > kAnlsThreshold ? similarity : 0.0;
  });
}

double rouge_l(std::string_view answer, const References& references) {
  const auto mine = words_of(answer);
  return best_over(references, [&](const std::string& reference) {
    const auto theirs = words_of(reference);
    const auto common = static_cast<double>(common_subsequence(mine, theirs));
    return common > 0 ? 2 * common / static_cast<double>(mine.size() + theirs.size()) : 0.0;
  });
}

}  // namespace lockstep
