#include "lockstep/metric/answer_scores.h"

#include <algorithm>
#include <cmath>
#include <map>
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

/// Runs of `length` items, and how often each stands there.
template <typename Items>
std::map<Items, int64_t> runs_of(const Items& items, size_t length) {
  std::map<Items, int64_t> counts;
  for (size_t end = length; end <= items.size(); ++end) {
    const auto last = items.begin() + static_cast<std::ptrdiff_t>(end);
    ++counts[Items(last - static_cast<std::ptrdiff_t>(length), last)];
  }
  return counts;
}

/// Runs that both have, each as often as the rarer side.
template <typename Items>
int64_t common_runs(const Items& mine, const Items& theirs, size_t length) {
  const auto other = runs_of(theirs, length);
  int64_t common = 0;
  for (const auto& [run, count] : runs_of(mine, length)) {
    const auto found = other.find(run);
    if (found != other.end()) common += std::min(count, found->second);
  }
  return common;
}

size_t num_runs(size_t items, size_t length) { return items < length ? 0 : items - length + 1; }

double rouge_n(std::string_view answer, const References& references, size_t length) {
  const auto mine = words_of(answer);
  return best_over(references, [&](const std::string& reference) {
    const auto theirs = words_of(reference);
    const auto common = static_cast<double>(common_runs(mine, theirs, length));
    const auto all = static_cast<double>(num_runs(mine.size(), length) + num_runs(theirs.size(), length));
    return common > 0 ? 2 * common / all : 0.0;
  });
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

double rouge_1(std::string_view answer, const References& references) { return rouge_n(answer, references, 1); }
double rouge_2(std::string_view answer, const References& references) { return rouge_n(answer, references, 2); }

double bleu_4(std::string_view answer, const References& references) {
  constexpr size_t kLongest = 4;
  const std::u32string mine = code_points(trimmed(answer));
  return best_over(references, [&](const std::string& reference) {
    const std::u32string theirs = code_points(trimmed(reference));  // as answers are
    double logs = 0, missing = 1;
    for (size_t length = 1; length <= kLongest; ++length) {
      auto common = static_cast<double>(common_runs(mine, theirs, length));
      if (common == 0 && length == 1) return 0.0;
      if (common == 0) common = missing /= 2;
      logs += std::log(common / static_cast<double>(std::max<size_t>(1, num_runs(mine.size(), length))));
    }
    const double longer = static_cast<double>(theirs.size()) / static_cast<double>(mine.size());
    return std::exp(logs / kLongest + std::min(0.0, 1 - longer));
  });
}

}  // namespace lockstep
