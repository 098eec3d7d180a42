#include "lockstep/infer/sampler.h"

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

std::vector<float> logits() { return {0.0F, 2.0F, 1.0F, 2.0F, -1.0F}; }

int32_t draw(const SamplingOptions& options, int64_t position, std::vector<int32_t> seen = {}) {
  auto row = logits();
  return next_token(row, seen, options, {.row = 3, .position = position});
}

TEST(Sampler, GreedyTakesTheFirstOfEquals) { EXPECT_EQ(draw({}, 0), 1); }

TEST(Sampler, GreedyFindsTheLargestOfAnyNumberAnywhere) {
  for (const size_t size : {1, 15, 16, 17, 100}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> row(size, -7.0F);
      row[at] = -3.0F;
      row.back() = -3.0F;  // an equal one behind it
      EXPECT_EQ(next_token(row, {}, {}, {}), static_cast<int32_t>(at)) << size;
    }
  }
}

TEST(Sampler, TakesNoTokenFromWhatIsNoNumber) {
  for (const size_t at : {0, 63, 64, 99}) {
    std::vector<float> row(100, 1.0F);
    row[at] = std::nanf("");
    for (const double temperature : {0.0, 1.0}) {
      try {
        (void)next_token(row, {}, {.temperature = temperature}, {.row = 4, .position = 2});
        FAIL() << at;
      } catch (const UserError& error) {
        EXPECT_EQ(error.code(), ExitCode::kNumerics);
        EXPECT_NE(std::string(error.what()).find("row 5: the model computes NaN for token 3"), std::string::npos);
      }
    }
  }
}

// Of infinite weights the sum is none, and whatever stands last would be drawn.
TEST(Sampler, TakesNoTokenWhereTheLikeliestIsInfinite) {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  for (const float best : {kInfinite, -kInfinite}) {
    for (const SamplingOptions& options :
         {SamplingOptions{}, SamplingOptions{.temperature = 1}, SamplingOptions{.temperature = 1, .top_k = 3}}) {
      std::vector<float> row(70, -kInfinite);
      row[3] = row[66] = best;
      EXPECT_THROW((void)next_token(row, {}, options, {}), UserError);
    }
  }
  std::vector<float> row(70, -kInfinite);
  row[66] = -1e30F;
  EXPECT_EQ(next_token(row, {}, {.temperature = 1}, {}), 66);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  EXPECT_EQ(draw({.repetition_penalty = 1.5}, 0, {1, 1}), 3);
  EXPECT_EQ(draw({.repetition_penalty = 3.0}, 0, {1, 3}), 2);
}

TEST(Sampler, LetsNoRowOfTokensStandTwice) {
  EXPECT_EQ(draw({.no_repeat_ngram_size = 2}, 0, {2, 1, 2}), 3);
  EXPECT_EQ(draw({.no_repeat_ngram_size = 2}, 0, {2, 1, 2, 3, 2}), 2) << "and the others that followed it";
  EXPECT_EQ(draw({.no_repeat_ngram_size = 3}, 0, {0, 2, 1, 0, 2}), 3);
  EXPECT_EQ(draw({.no_repeat_ngram_size = 3}, 0, {4, 2, 1, 0, 2}), 1) << "which stands there once";
  EXPECT_EQ(draw({.no_repeat_ngram_size = 1}, 0, {1, 3, -200, 900}), 2);
  EXPECT_EQ(draw({.no_repeat_ngram_size = 4}, 0, {1, 1, 1}), 1) << "too few for one";
}

TEST(Sampler, MinPLeavesOutWhatIsFarBelowTheLikeliest) {
  const auto drawn = [](const SamplingOptions& options) {
    std::set<int32_t> found;
    for (int64_t i = 0; i < 400; ++i) found.insert(draw(options, i));
    return found;
  };
  // Parts of the likeliest one's probability: 0.135, 1, 0.368, 1, 0.050; at a temperature of 5 0.670, 1, 0.819, 1, 0.549.
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.2}), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 5, .min_p = 0.6}), (std::set<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 5, .top_k = 2, .min_p = 0.1}), (std::set<int32_t>{1, 3}));
}

TEST(Sampler, TopKAndTopPLeaveOutTheRest) {
  std::set<int32_t> two, nucleus;
  for (int64_t i = 0; i < 200; ++i) {
    two.insert(draw({.temperature = 5.0, .top_k = 2}, i));
    nucleus.insert(draw({.temperature = 1.0, .top_p = 0.75}, i));  // 0.40, 0.40, 0.15, 0.05, 0.02
  }
  EXPECT_EQ(two, (std::set<int32_t>{1, 3}));
  EXPECT_EQ(nucleus, (std::set<int32_t>{1, 3}));
}

TEST(Sampler, DrawsInProportion) {
  std::map<int32_t, int> counts;
  for (int64_t i = 0; i < 20000; ++i) ++counts[draw({.temperature = 1.0}, i)];
  double total = 0;
  for (const float l : logits()) total += std::exp(l);
  EXPECT_NEAR(counts[1] / 20000.0, std::exp(2.0) / total, 0.01);
  EXPECT_NEAR(counts[4] / 20000.0, std::exp(-1.0) / total, 0.01);
}

TEST(Sampler, TheSameDrawIsTheSameToken) {
  std::set<int32_t> seeds;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const SamplingOptions options{.temperature = 3.0, .seed = seed};
    EXPECT_EQ(draw(options, 7), draw(options, 7));
    seeds.insert(draw(options, 7));
  }
  EXPECT_GT(seeds.size(), 2U);
}

}  // namespace
}  // namespace lockstep
