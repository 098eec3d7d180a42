#include "lockstep/session/row_pieces.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

/// Every third byte begins a token.
int64_t thirds(uint64_t begin, uint64_t end) { return static_cast<int64_t>((end - begin + 2) / 3); }

std::vector<std::string> pieces(const std::string& text, int64_t most,
                                const std::function<int64_t(uint64_t, uint64_t)>& tokens_of = thirds) {
  std::vector<std::string> out;
  uint64_t begin = 0;
  for (const uint64_t end : piece_ends(text, most, tokens_of)) {
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

TEST(RowPieces, AreTheWholeTextAndFitAndAreNearlyFull) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += (i % 13 == 0 ? "\n" : " ") + std::to_string(i * 7919);
  const auto made = pieces(text, 300);
  std::string all;
  for (size_t i = 0; i < made.size(); ++i) {
    const int64_t tokens = thirds(0, made[i].size());
    EXPECT_LE(tokens, 300);
    EXPECT_TRUE(i + 1 == made.size() || tokens >= 260) << i << ": " << tokens;
    EXPECT_TRUE(i == 0 || made[i][0] == ' ' || made[i][0] == '\n') << made[i].substr(0, 9);
    all += made[i];
  }
  EXPECT_EQ(all, text);
  EXPECT_EQ(pieces("a short one", 300), std::vector<std::string>{"a short one"});
  EXPECT_TRUE(pieces("", 300).empty());
}

TEST(RowPieces, FollowATextWhoseTokensGrowShorter) {
  const std::string text = std::string(6000, 'a') + std::string(6000, 'b');
  const auto tokens_of = [&](uint64_t begin, uint64_t end) {  // eight letters a token, then one
    const uint64_t a = std::min<uint64_t>(end, 6000) - std::min<uint64_t>(begin, 6000);
    return static_cast<int64_t>((a + 7) / 8 + (end - begin - a));
  };
  std::string all;
  for (const auto& piece : pieces(text, 500, tokens_of)) {
    EXPECT_LE(tokens_of(all.size(), all.size() + piece.size()), 500);
    all += piece;
  }
  EXPECT_EQ(all, text);
}

TEST(RowPieces, NeverCutACharacterAndAlwaysEnd) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "\xE7\x94\xB7\xF0\x9F\x98\x80";
  const auto bytes = [](uint64_t begin, uint64_t end) { return static_cast<int64_t>(end - begin); };
  for (const int64_t most : {1, 2, 5, 30}) {
    std::string all;
    for (const auto& piece : pieces(text, most, bytes)) {
      ASSERT_FALSE(piece.empty());
      EXPECT_NE(static_cast<unsigned char>(piece[0]) & 0xC0U, 0x80U);
      EXPECT_LE(std::ssize(piece), std::max<int64_t>(most, 4));
      all += piece;
    }
    EXPECT_EQ(all, text);
  }
}

}  // namespace
}  // namespace lockstep
