#include "lockstep/zoo/spelled_text.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/data/test_images.h"

namespace lockstep {
namespace {

using Ids = std::vector<int32_t>;

class SpelledText : public testing::Test {
 protected:
  SpelledText()
      : tokenizer_(Tokenizer::load(std::filesystem::path(LOCKSTEP_FIXTURES) / "oracle/seed1/llava/checkpoint")) {
    image_ = tokenizer_.id_of("<image>").value();
    sample_.where = "train.jsonl:3";
    rules_.kinds[Modality::kImage] = {.placeholder = "[picture]",
                                      .prepare = [](const LoadedMedium&, const MediaOptions&,
                                                    const std::string&) { return std::vector<MediaBlock>(2); },
                                      .spell =
                                          [this](const std::vector<MediaBlock>& blocks, int64_t index) {
                                            return std::vector<MediaRun>{
                                                {.text = "no. " + std::to_string(index) + ": "},
                                                {.token = image_, .count = 3, .block = 0},
                                                {.text = "<image>"},  // text, although it is the token that media fill
                                                {.token = image_, .count = 1, .block = blocks.size() - 1}};
                                          }};
  }
  void give_images(size_t count) {
    const std::string picture = std::string(LOCKSTEP_FIXTURES) + "/oracle/odd/qwen2_5_vl/media/a.png";
    sample_.images.assign(count, picture);
  }

  Tokenizer tokenizer_;
  int32_t image_ = 0;
  Sample sample_;
  MediaRules rules_;
  MediaOptions options_;
};

TEST_F(SpelledText, FillsWhatTheSpellingSaysAndNoTokenThatLooksTheSame) {
  give_images(2);
  MediaSpeller speller(rules_, sample_, options_);
  const auto pieces = speller.spell("Look: [picture] and [picture]!");
  const SpelledTokens tokens = encode(tokenizer_, pieces, false);
  EXPECT_EQ(tokens.ids, tokenizer_.encode("Look: no. 0: <image><image><image><image><image> and "
                                          "no. 1: <image><image><image><image><image>!"));
  ASSERT_EQ(speller.blocks().size(), 4U);
  Ids filled;
  for (size_t i = 0; i < tokens.ids.size(); ++i) {
    if (tokens.ids[i] == image_)
      filled.push_back(tokens.filled[i]);
    else
      EXPECT_EQ(tokens.filled[i], -1);
  }
  EXPECT_EQ(filled, (Ids{0, 0, 0, -1, 1, 2, 2, 2, -1, 3}));
}

TEST_F(SpelledText, TextsBesideAMediumThatStandsApartAreReadEachAlone) {
  give_images(1);
  rules_.kinds[Modality::kImage].spell = [](const std::vector<MediaBlock>&, int64_t) {
    return std::vector<MediaRun>{{.token = 0, .count = 2, .block = 0, .apart = true}};
  };
  MediaSpeller speller(rules_, sample_, options_);
  const SpelledTokens tokens = encode(tokenizer_, speller.spell("Look: [picture]What"), true);
  Ids expected = tokenizer_.encode("Look: ", {.continues = true});
  expected.insert(expected.end(), 2, 0);
  for (const int32_t id : tokenizer_.encode("What")) expected.push_back(id);
  EXPECT_EQ(tokens.ids, expected);
  EXPECT_NE(tokenizer_.encode("What"), tokenizer_.encode("What", {.continues = true}))
      << "a case that tells them apart";
}

TEST_F(SpelledText, APlaceholderInTheTextIsNotTakenForAPicture) {
  give_images(1);
  MediaSpeller speller(rules_, sample_, options_);
  try {
    speller.spell("[picture] I typed [picture]");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("train.jsonl:3"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("[picture]"), std::string::npos) << error.what();
  }
}

TEST_F(SpelledText, ATemplateThatLeavesAPictureOutIsNamed) {
  give_images(2);
  MediaSpeller speller(rules_, sample_, options_);
  speller.spell("[picture]");
  EXPECT_NO_THROW(speller.check_all_stand({{Modality::kImage, 1}}));
  EXPECT_THROW(speller.check_all_stand({{Modality::kImage, 2}}), UserError);
}

}  // namespace
}  // namespace lockstep
