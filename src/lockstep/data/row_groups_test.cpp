#include "lockstep/data/row_groups.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "lockstep/data/loader.h"

namespace lockstep {
namespace {

std::vector<RowSize> sizes_of(const std::vector<int32_t>& tokens) {
  std::vector<RowSize> sizes;
  for (const int32_t count : tokens) sizes.push_back({.tokens = count});
  return sizes;
}

std::vector<int64_t> in_file_order(size_t count) {
  return epoch_order(static_cast<int64_t>(count), 0, 0, /*shuffle=*/false);
}

TEST(RowGroups, FillTheBinThatARowFillsBest) {
  const auto sizes = sizes_of({6, 4, 7, 3, 10, 2, 5});
  EXPECT_EQ(fill_bins(sizes, {.capacity = 10}, in_file_order(7)), (Bins{{0, 1}, {2, 3}, {4}, {5, 6}}));
}

TEST(RowGroups, FillBinsInOrderWhenAsked) {
  const auto sizes = sizes_of({6, 4, 7, 3, 10, 2, 5});
  EXPECT_EQ(fill_bins(sizes, {.capacity = 10, .sequential = true}, in_file_order(7)),
            (Bins{{0, 1}, {2, 3}, {4}, {5, 6}}));
  const std::vector<int64_t> other{5, 4, 3, 2, 1, 0, 6};
  EXPECT_EQ(fill_bins(sizes, {.capacity = 10, .sequential = true}, other), (Bins{{5}, {4}, {3, 2}, {1, 0}, {6}}));
}

TEST(RowGroups, GiveARowThatIsLongerThanABinItsOwnAndLeaveOutWhatCannotBeUsed) {
  const auto sizes = sizes_of({3, 0, 12, 4});
  for (const bool sequential : {false, true}) {
    EXPECT_EQ(fill_bins(sizes, {.capacity = 10, .sequential = sequential}, in_file_order(4)).size(),
              sequential ? 3U : 2U);
    std::multiset<int64_t> rows;
    for (const auto& bin : fill_bins(sizes, {.capacity = 10, .sequential = sequential}, in_file_order(4))) {
      rows.insert(bin.begin(), bin.end());
    }
    EXPECT_EQ(rows, (std::multiset<int64_t>{0, 2, 3}));
  }
}

TEST(RowGroups, HoldEveryRowOnceAndNoBinTooMuch) {
  std::mt19937_64 random(5);
  for (int run = 0; run < 200; ++run) {
    std::vector<int32_t> tokens(1 + random() % 200);
    for (auto& count : tokens) count = static_cast<int32_t>(random() % 64);
    const auto sizes = sizes_of(tokens);
    const auto order = epoch_order(static_cast<int64_t>(tokens.size()), random(), 0, true);
    const int64_t sum = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
    for (const bool sequential : {false, true}) {
      const Bins bins = fill_bins(sizes, {.capacity = 64, .sequential = sequential}, order);
      std::multiset<int64_t> seen;
      for (const auto& bin : bins) {
        int64_t held = 0;
        for (const int64_t row : bin) held += tokens[static_cast<size_t>(row)];
        EXPECT_LE(held, 64);
        seen.insert(bin.begin(), bin.end());
      }
      EXPECT_EQ(std::ssize(seen), std::ssize(tokens) - std::ranges::count(tokens, 0));
      EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), seen.size());
      if (sequential) continue;
      EXPECT_LE(std::ssize(bins), 1 + sum * 3 / (2 * 64) + 1) << "best fit, longest first";
    }
  }
}

TEST(RowGroups, PutRowsOfAboutOneLengthTogether) {
  std::mt19937_64 random(9);
  std::vector<int32_t> tokens(1000);
  for (auto& count : tokens) count = static_cast<int32_t>(1 + random() % 500);
  const auto sizes = sizes_of(tokens);
  const auto shuffled = epoch_order(1000, 1, 0, true);
  const auto padded = [&](const std::vector<int64_t>& order) {
    int64_t area = 0;
    for (size_t begin = 0; begin < order.size(); begin += 8) {
      int32_t longest = 0;
      for (size_t i = begin; i < begin + 8; ++i) longest = std::max(longest, tokens[static_cast<size_t>(order[i])]);
      area += 8 * longest;
    }
    return static_cast<double>(area);
  };
  const auto order = by_length(sizes, 8, shuffled);
  EXPECT_TRUE(std::ranges::is_permutation(order, shuffled));
  EXPECT_EQ(tokens[static_cast<size_t>(order[0])], std::ranges::max(tokens)) << "what needs most memory comes at once";
  const auto exist = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), int64_t{0}));
  EXPECT_LT(padded(order), 1.1 * exist);
  EXPECT_GT(padded(shuffled), 1.5 * exist);
}

TEST(RowGroups, KeepRowsWithMediaAndRowsWithoutApart) {
  std::mt19937_64 random(9);
  std::vector<RowSize> sizes(203);
  for (auto& size : sizes) size = {.tokens = static_cast<int32_t>(1 + random() % 90), .media = random() % 3 == 0};
  constexpr int64_t kChunk = 8;
  const auto order = by_modality_and_length(sizes, kChunk, epoch_order(203, 1, 0, true), 1, 0);
  EXPECT_TRUE(std::ranges::is_permutation(order, in_file_order(203)));
  int mixed = 0, with = 0, turns = 0;
  bool last = false;
  for (size_t begin = 0; begin < order.size(); begin += kChunk) {
    int64_t media = 0;
    const size_t end = std::min(order.size(), begin + kChunk);
    for (size_t i = begin; i < end; ++i) media += sizes[static_cast<size_t>(order[i])].media;
    mixed += media != 0 && media != static_cast<int64_t>(end - begin) ? 1 : 0;
    with += media == kChunk ? 1 : 0;
    turns += (media > 0) != last ? 1 : 0;
    last = media > 0;
  }
  EXPECT_LE(mixed, 1) << "what remains of both";
  EXPECT_GT(with, 4);
  EXPECT_GT(turns, 4) << "both kinds come all the time";
  EXPECT_NE(order, by_modality_and_length(sizes, kChunk, epoch_order(203, 1, 1, true), 1, 1));
}

}  // namespace
}  // namespace lockstep
