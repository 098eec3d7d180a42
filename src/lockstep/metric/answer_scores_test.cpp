#include "lockstep/metric/answer_scores.h"

#include <random>

#include <gtest/gtest.h>

#include "lockstep/metric/characters.h"

namespace lockstep {
namespace {

TEST(Characters, EditDistanceCountsCodePoints) {
  EXPECT_EQ(edit_distance(U"kitten", U"sitting"), 3U);
  EXPECT_EQ(edit_distance(U"", U"abc"), 3U);
  EXPECT_EQ(edit_distance(U"same", U"same"), 0U);
  EXPECT_EQ(edit_distance(code_points("北京市"), code_points("北京")), 1U);
  EXPECT_EQ(edit_distance(code_points("naïve"), code_points("naive")), 1U);
}

TEST(Characters, FoldsCaseAndWhiteSpaceOfAnyScript) {
  EXPECT_EQ(folded("  Über\t\n STRASSE "), U"über strasse");
  EXPECT_EQ(folded("ПРИВЕТ\u3000мир"), U"привет мир");
  EXPECT_EQ(folded(" \n"), U"");
  EXPECT_EQ(code_points("a\xff"), U"a\uFFFD");
}

TEST(Characters, WordsAreRunsOfLettersAndHanStandsAlone) {
  using Words = std::vector<std::u32string>;
  EXPECT_EQ(words_of("The cat's 2 mats."), (Words{U"the", U"cat", U"s", U"2", U"mats"}));
  EXPECT_EQ(words_of("我爱Berlin。"), (Words{U"我", U"爱", U"berlin"}));
  EXPECT_EQ(words_of("?!"), Words{});
}

TEST(ExactMatch, IgnoresWhiteSpaceAtTheEndsAlone) {
  EXPECT_EQ(exact_match(" red\n", {"red"}), 1.0);
  EXPECT_EQ(exact_match("Red", {"red"}), 0.0);
  EXPECT_EQ(exact_match("two", {"2", "two"}), 1.0);
  EXPECT_EQ(exact_match("", {"red"}), 0.0);
}

TEST(Anls, IsOneMinusTheShareOfEditsDownToAHalf) {
  EXPECT_DOUBLE_EQ(anls("Paris.", {"paris", "Paris, France"}), 1 - 1.0 / 6);
  EXPECT_DOUBLE_EQ(anls("12:00", {"12.00"}), 0.8);
  EXPECT_DOUBLE_EQ(anls("ab", {"cb"}), 0.0);  // exactly a half counts as wrong
  EXPECT_DOUBLE_EQ(anls("abc", {"abd"}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(anls("北京", {"北京市"}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(anls("", {"x"}), 0.0);
  EXPECT_DOUBLE_EQ(anls("  THE   Cat ", {"the cat"}), 1.0);
}

// police killed the gunman / police kill the gunman: the example of Lin 2004, section 3.1.
TEST(RougeL, IsTheFMeasureOfTheLongestCommonSubsequence) {
  EXPECT_DOUBLE_EQ(rouge_l("police kill the gunman", {"police killed the gunman"}), 0.75);
  EXPECT_DOUBLE_EQ(rouge_l("the gunman kill police", {"police killed the gunman"}), 0.5);
  EXPECT_DOUBLE_EQ(rouge_l("the cat", {"The cat sat on the mat."}), 0.5);  // P 1, R 2/6
  EXPECT_DOUBLE_EQ(rouge_l("我爱北京", {"我爱北京天安门"}), 8.0 / 11);
  EXPECT_DOUBLE_EQ(rouge_l("dog", {"cat", "a dog"}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(rouge_l("", {"cat"}), 0.0);
  EXPECT_DOUBLE_EQ(rouge_l("!", {"?"}), 0.0);
}

// As rouge_score 0.1.2 counts them; Han, which it leaves out, by hand.
TEST(RougeN, IsTheFMeasureOfRunsOfWords) {
  EXPECT_DOUBLE_EQ(rouge_1("police kill the gunman", {"police killed the gunman"}), 0.75);
  EXPECT_DOUBLE_EQ(rouge_2("police kill the gunman", {"police killed the gunman"}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(rouge_1("the the the", {"the cat the"}), 2.0 / 3) << "as often as the rarer side";
  EXPECT_DOUBLE_EQ(rouge_2("the the the", {"the cat the"}), 0.0);
  EXPECT_DOUBLE_EQ(rouge_1("abc abc abc", {"abc abc"}), 0.8);
  EXPECT_DOUBLE_EQ(rouge_2("abc abc abc", {"abc abc"}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(rouge_2("我爱北京", {"我爱北京天安门"}), 2.0 * 3 / (3 + 6));
  EXPECT_DOUBLE_EQ(rouge_1("", {"cat"}), 0.0);
  EXPECT_DOUBLE_EQ(rouge_2("cat", {"cat"}), 0.0) << "no run of two";
}

// As sentence_bleu of nltk 3.9 with method3 counts lists of characters.
TEST(Bleu4, IsTheSmoothedMeanOfPrecisionsOfCharacters) {
  EXPECT_NEAR(bleu_4("police kill the gunman", {"police killed the gunman"}), 0.8416346004872248, 1e-12);
  EXPECT_NEAR(bleu_4("the cat", {"The cat sat on the mat."}), 0.10170139230422684, 1e-12);
  EXPECT_NEAR(bleu_4("the the the", {"the cat the"}), 0.4832697830906221, 1e-12);
  EXPECT_NEAR(bleu_4("a", {"abcd"}), 0.017602386829157428, 1e-12);
  EXPECT_NEAR(bleu_4("我爱北京", {"我爱北京天安门"}), 0.4723665527410147, 1e-12);
  EXPECT_NEAR(bleu_4("xbcdy", {"abcde"}), 0.3976353643835253, 1e-12);
  EXPECT_NEAR(bleu_4("abc abc abc", {"abc abc", "x"}), 0.5706745777055999, 1e-12);
  EXPECT_NEAR(bleu_4(" whe whe ", {"whe whe\n"}), 1.0, 1e-12) << "spaces around are neither's";
  EXPECT_EQ(bleu_4("", {"cat"}), 0.0);
  EXPECT_EQ(bleu_4("dog", {"cat"}), 0.0);
}

/// The textbook's table, to hold against the bits.
size_t common_by_table(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> table(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      table[i][j] = a[i - 1] == b[j - 1] ? table[i - 1][j - 1] + 1 : std::max(table[i - 1][j], table[i][j - 1]);
    }
  }
  return table[a.size()][b.size()];
}

TEST(RougeL, EqualsTheTableForTextsLongerThanOneMachineWord) {
  const auto seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const auto letters = [&](size_t most) {
      std::string out(1 + random() % most, 'a');
      for (char& c : out) c = static_cast<char>('a' + random() % 3);
      return out;
    };
    const std::string a = letters(200), b = letters(300);
    const auto spaced = [](const std::string& text) {
      std::string out;
      for (const char c : text) out += std::string(1, c) + " ";
      return out;
    };
    const double expected = 2.0 * static_cast<double>(common_by_table(a, b)) / static_cast<double>(a.size() + b.size());
    ASSERT_DOUBLE_EQ(rouge_l(spaced(a), {spaced(b)}), expected) << a << "\n" << b;
  }
}

}  // namespace
}  // namespace lockstep
