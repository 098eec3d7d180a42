#include "lockstep/session/kept_blocks.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(MostKept, IsWhatTheLimitAllowsAfterFewTries) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)); };
  int most_tries = 0;
  for (int run = 0; run < 2000; ++run) {
    // What a step needs anyway hides the first few; then each block costs alike, or each another size.
    const auto blocks = static_cast<int>(1 + up_to(99));
    const int64_t hidden = up_to(500), each = 1 + up_to(20), spread = run % 2 == 0 ? 0 : up_to(40);
    std::vector<int64_t> needs{1000};
    int64_t kept = 1000 - hidden;
    for (int b = 0; b < blocks; ++b) {
      kept += each + up_to(spread);
      needs.push_back(std::max<int64_t>(1000, kept));
    }
    const int64_t limit = 990 + up_to(1500);
    int tries = 0;
    const int found = most_kept(blocks, limit, [&](int k) {
      ++tries;
      return needs.at(static_cast<size_t>(k));
    });
    const auto above = std::upper_bound(needs.begin(), needs.end(), limit);
    EXPECT_EQ(found, std::max<int64_t>(0, above - needs.begin() - 1));
    most_tries = std::max(most_tries, tries);
  }
  EXPECT_LE(most_tries, 14) << "two a halving";
}

TEST(MostKept, NothingIsTriedWhereNothingRunsAgain) {
  EXPECT_EQ(most_kept(0, 100, [](int) { return int64_t{1}; }), 0);
  EXPECT_EQ(most_kept(5, 0, [](int) { return int64_t{1}; }), 0);
}

}  // namespace
}  // namespace lockstep
