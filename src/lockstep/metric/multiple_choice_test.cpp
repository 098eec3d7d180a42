#include "lockstep/metric/multiple_choice.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(MultipleChoice, KnowsAChoiceThatStandsAlone) {
  for (const char* text : {"B", "b", "(B)", "B.", " B) ", "**B**", "[b]", "B:", "\"B\""})
    EXPECT_EQ(choice_alone(text), 'B') << text;
  for (const char* text : {"", "BC", "yes", "B cat", "1", "我", "()"})
    EXPECT_EQ(choice_alone(text), std::nullopt) << text;
}

TEST(MultipleChoice, FindsTheLetterInAnAnswer) {
  for (const char* text : {"B",
                           "(b)",
                           "B.",
                           "B\nbecause it is red",
                           "The answer is B",
                           "The answer is (B).",
                           "the correct answer is: b",
                           "Answer: B",
                           "Answer: **B**",
                           "B. A red cat",
                           "(b) a red cat",
                           "B: red",
                           "I choose B",
                           "It must be (B), not blue",
                           "Option B",
                           "A is wrong. The answer is B",
                           "答案是B",
                           "答案：B",
                           "选B吧",
                           "选择 B",
                           "B、红色",
                           "A cat is seen in B",
                           "B is correct",
                           "First I thought the answer is A, but the answer is B"}) {
    EXPECT_EQ(choice_in_answer(text), 'B') << text;
  }
}

TEST(MultipleChoice, TellsTheChoiceAFromTheArticle) {
  EXPECT_EQ(choice_in_answer("A is correct"), 'A');
  EXPECT_EQ(choice_in_answer("A cat"), std::nullopt);
  EXPECT_EQ(choice_in_answer("The answer is A dog"), 'A');
  EXPECT_EQ(choice_in_answer("The answer is a dog"), std::nullopt);
}

TEST(MultipleChoice, FindsNoneWhereNoneIsGiven) {
  for (const char* text : {"", "a red cat", "A cat", "The answer is a dog", "I think so", "A or B", "BBC",
                           "Both answers are good", "C3PO", "it's 5"}) {
    EXPECT_EQ(choice_in_answer(text), std::nullopt) << text;
  }
}

TEST(MultipleChoice, ScoresAgainstTheRowsLetter) {
  EXPECT_EQ(multiple_choice("The answer is (C).", {"C"}), 1.0);
  EXPECT_EQ(multiple_choice("C", {"c."}), 1.0);
  EXPECT_EQ(multiple_choice("D", {"C"}), 0.0);
  EXPECT_EQ(multiple_choice("no idea", {"C"}), 0.0);
  EXPECT_EQ(multiple_choice("D", {"C", "D"}), 1.0);
}

}  // namespace
}  // namespace lockstep
