#include "lockstep/tasks/conversation.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Question {
  std::string content;
  std::vector<std::string> images;
};

Question asked(const std::string& text, std::vector<std::string> images = {}) {
  std::string content = place_images(text, images);
  return {std::move(content), std::move(images)};
}

TEST(Question, IsWhatARowOfADataSetWouldSay) {
  const std::string wanted = "<image>What is it?";
  for (const Question& question : {asked("What is it?", {"a.png"}), asked("<image>What is it?", {"a.png"}),
                                   asked("<image>a.png What is it?"), asked("<image>\"a.png\"What is it?")}) {
    EXPECT_EQ(question.content, wanted);
    EXPECT_EQ(question.images, std::vector<std::string>{"a.png"});
  }
}

TEST(Question, PicturesStandInTheirOrderAndPlaces) {
  EXPECT_EQ(asked("Which?", {"a.png", "b.png"}).content, "<image><image>Which?");
  EXPECT_EQ(asked("<image> or <image>?", {"a.png", "b.png"}).content, "<image> or <image>?");
  const Question named = asked("Is <image>a.png like <image>\"my b.png\"?");
  EXPECT_EQ(named.content, "Is <image>like <image>?");
  EXPECT_EQ(named.images, (std::vector<std::string>{"a.png", "my b.png"}));
}

TEST(Question, MarksWithoutPicturesAreRefused) {
  EXPECT_THROW(asked("<image> and <image>?", {"a.png"}), UserError);
  EXPECT_THROW(asked("What is <image>"), UserError);
}

}  // namespace
}  // namespace lockstep
