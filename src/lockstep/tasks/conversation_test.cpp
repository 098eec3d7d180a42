#include "lockstep/tasks/conversation.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Question {
  std::string content;
  std::vector<std::string> images;
  size_t in_front = 0;
};

Question asked(const std::string& text, std::vector<std::string> images = {}) {
  Message question = place_images(text, images);
  return {std::move(question.content), std::move(images), question.media_in_front};
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

TEST(Question, PicturesThatNoTextMarksAreInFront) {
  EXPECT_EQ(asked("Which?", {"a.png", "b.png"}).in_front, 2U);
  EXPECT_EQ(asked("<image>a.png Which?").in_front, 1U);
  EXPECT_EQ(asked("<image>Which?", {"a.png"}).in_front, 0U);
  EXPECT_EQ(asked("Is <image>a.png it?").in_front, 0U);
}

TEST(Question, MarksWithoutPicturesAreRefused) {
  EXPECT_THROW(asked("<image> and <image>?", {"a.png"}), UserError);
  EXPECT_THROW(asked("What is <image>"), UserError);
}

// Else the next question would miss a picture that nobody gave, as would every one after it.
TEST(Answer, NoMarkInItStandsForAPicture) {
  const Message said = as_said("Write <image>, <video><audio> or <images>.");
  EXPECT_EQ(said.content, "Write < image>, < video>< audio> or <images>.");
  EXPECT_EQ(said.role, "assistant");
}

}  // namespace
}  // namespace lockstep
