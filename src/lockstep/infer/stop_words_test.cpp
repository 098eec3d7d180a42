#include "lockstep/infer/stop_words.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

/// After how many tokens of these texts an answer ends; 0: it does not.
size_t ends_after(const Words& texts, const Words& stops) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < texts.size(); ++i) tokens.push_back(static_cast<int32_t>(i));
  const auto text_of = [&](std::span<const int32_t> ids) {
    std::string text;
    for (const int32_t id : ids) text += texts[static_cast<size_t>(id)];
    return text;
  };
  for (size_t count = 1; count <= tokens.size(); ++count) {
    if (ends_by_stop_word(std::span(tokens).first(count), stops, text_of)) return count;
  }
  return 0;
}

// What transformers 5.23's StopStringCriteria says of the same tokens.
TEST(StopWords, EndAnAnswerWhereATokenCompletesThem) {
  EXPECT_EQ(ends_after({"st", "op", "x"}, {"stop"}), 2u);
  EXPECT_EQ(ends_after({"a", "s", "to", "pped", "x"}, {"stop"}), 4u) << "within a token";
  EXPECT_EQ(ends_after({"stopper"}, {"stop"}), 1u);
  EXPECT_EQ(ends_after({"s", "to", "ne"}, {"stop"}), 0u);
  EXPECT_EQ(ends_after({"a", "\n", "\n", "b"}, {"x", "\n\n"}), 3u) << "any of them";
  EXPECT_EQ(ends_after({"sto", "p"}, {}), 0u);
  EXPECT_EQ(ends_after({"o", "oo"}, {"oo"}), 2u);
}

TEST(StopWords, AreFoundBehindALongAnswerAndOnce) {
  Words texts(100, "lo");
  EXPECT_EQ(ends_after(texts, {"ol"}), 2u);
  texts.insert(texts.end(), {"Obs", "erva", "", "", "tion", ":", " 7"});
  EXPECT_EQ(ends_after(texts, {"Observation:"}), 106u);
}

}  // namespace
}  // namespace lockstep
