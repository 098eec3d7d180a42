#include "lockstep/data/fit_length.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

TEST(FitLength, CutsTextAndNeverPlaceholders) {
  const auto cut = [](Truncation truncation, int64_t limit) {
    TokenRow row{{1, 9, 9, 2, 3, 4}, {-100, -100, -100, 2, 3, 4}, {{.places = {1, 2}}}};
    fit_length(row, {.max_length = limit, .truncation = truncation}, "row");
    return std::tuple(row.ids, row.labels, row.media[0].places);
  };
  EXPECT_EQ(cut(Truncation::kRight, 4), std::tuple(Ids({1, 9, 9, 2}), Ids({-100, -100, -100, 2}), Ids({1, 2})));
  EXPECT_EQ(cut(Truncation::kLeft, 4), std::tuple(Ids({9, 9, 3, 4}), Ids({-100, -100, 3, 4}), Ids({0, 1})));
  EXPECT_EQ(cut(Truncation::kRight, 2), std::tuple(Ids({9, 9}), Ids({-100, -100}), Ids({0, 1})));
  EXPECT_EQ(cut(Truncation::kTurns, 5), std::tuple(Ids({1, 9, 9, 2, 3}), Ids({-100, -100, -100, 2, 3}), Ids({1, 2})));
  EXPECT_THROW(cut(Truncation::kRight, 1), UserError);
  EXPECT_THROW(cut(Truncation::kTurns, 1), UserError);
  EXPECT_THROW(cut(Truncation::kDelete, 5), UserError);
  EXPECT_EQ(std::get<0>(cut(Truncation::kDelete, 6)).size(), 6U);
}

/// A row of questions and answers of these lengths, cut; what stays of each.
std::vector<size_t> turns_of(const std::vector<size_t>& lengths, int64_t limit, Taught::Of of = Taught::Of::kAnswers) {
  TokenRow row;
  for (size_t i = 0; i < lengths.size(); ++i) {
    row.ids.insert(row.ids.end(), lengths[i], static_cast<int32_t>(i));
    row.labels.insert(row.labels.end(), lengths[i], i % 2 == 0 ? -100 : static_cast<int32_t>(i));
  }
  fit_length(row, {.max_length = limit, .truncation = Truncation::kTurns, .taught = {.of = of}}, "row");
  std::vector<size_t> stays(lengths.size(), 0);
  for (const int32_t id : row.ids) ++stays[static_cast<size_t>(id)];
  return stays;
}

TEST(FitLength, ShortensTurnsInProportionAsLlamaFactory) {
  using Sizes = std::vector<size_t>;
  // By LLaMA-Factory's infer_seqlen: (20, 4, 10), (4, 20, 10), (20, 20, 10), (7, 13, 11).
  EXPECT_EQ(turns_of({20, 4}, 10), Sizes({6, 4})) << "a short answer stays whole";
  EXPECT_EQ(turns_of({4, 20}, 10), Sizes({4, 6})) << "a short question stays whole";
  EXPECT_EQ(turns_of({20, 20}, 10), Sizes({5, 5}));
  EXPECT_EQ(turns_of({7, 13}, 11), Sizes({4, 7}));
  // Turn for turn: what the first leaves is the second's, and where nothing is left the others go.
  EXPECT_EQ(turns_of({3, 3, 20, 6}, 20), Sizes({3, 3, 8, 6}));
  EXPECT_EQ(turns_of({20, 20, 3, 3}, 10), Sizes({5, 5, 0, 0}));
}

TEST(FitLength, WhereQuestionsAreLearntTooAnAnswerIsKeptAllTheSame) {
  TokenRow row{.ids = Ids(12, 1), .labels = Ids(12, -100), .media = {}};
  row.ids[10] = row.ids[11] = row.labels[10] = row.labels[11] = 2;
  row.all = row.ids;
  fit_length(row, {.max_length = 6, .truncation = Truncation::kTurns, .taught = {.of = Taught::Of::kAll}}, "row");
  EXPECT_EQ(row.ids, Ids({1, 1, 1, 1, 2, 2}));
  EXPECT_EQ(row.labels, row.ids);
}

TEST(FitLength, KeepsTheQuestionWhoseAnswerAloneIsLearnt) {
  TokenRow row{.ids = Ids(12), .labels = Ids(12, -100), .media = {}};
  std::iota(row.ids.begin(), row.ids.end(), 0);
  row.labels[10] = row.labels[11] = 1;
  fit_length(row, {.max_length = 6, .truncation = Truncation::kTurns, .taught = {.of = Taught::Of::kLastRound}}, "row");
  EXPECT_EQ(row.ids, Ids({6, 7, 8, 9, 10, 11}));
}

/// As turns_of, of a row that learns its last answer alone; what is learnt of it stands behind.
std::vector<size_t> last_round_of(const std::vector<size_t>& lengths, int64_t limit) {
  TokenRow row;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (i + 2 == lengths.size()) row.history = row.ids.size();
    row.ids.insert(row.ids.end(), lengths[i], static_cast<int32_t>(i));
    row.labels.insert(row.labels.end(), lengths[i], i % 2 == 0 ? -100 : static_cast<int32_t>(i));
  }
  fit_length(row, {.max_length = limit, .truncation = Truncation::kTurns, .taught = {.of = Taught::Of::kLastRound}},
             "row");
  std::vector<size_t> stays(lengths.size(), 0);
  for (const int32_t id : row.ids) ++stays[static_cast<size_t>(id)];
  stays.push_back(row.labels.size() - static_cast<size_t>(std::ranges::count(row.labels, -100)));
  return stays;
}

TEST(FitLength, TheLastRoundComesFirstWhereItAloneIsLearntAsInLlamaFactory) {
  using Sizes = std::vector<size_t>;
  // By LLaMA-Factory's infer_seqlen over the pairs from the last to the first, as its mask_history has them.
  EXPECT_EQ(last_round_of({30, 30, 30, 30, 6, 27}, 40), Sizes({0, 0, 4, 3, 6, 27, 27}));
  EXPECT_EQ(last_round_of({5, 4, 6, 3, 20, 6}, 30), Sizes({0, 0, 3, 1, 20, 6, 6}));
  EXPECT_EQ(last_round_of({9, 9, 20, 20}, 10), Sizes({0, 0, 5, 5, 5}));
  EXPECT_EQ(last_round_of({3, 3, 4, 4}, 40), Sizes({3, 3, 4, 4, 4})) << "a row that fits learns no more of itself";
}

}  // namespace
}  // namespace lockstep
