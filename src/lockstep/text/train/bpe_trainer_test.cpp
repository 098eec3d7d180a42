#include "lockstep/text/train/bpe_trainer.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/text/train/bpe_learner.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

fs::path written(const FreshTokenizer& fresh, const std::string& name) {
  const fs::path dir = fs::path(testing::TempDir()) / ("bpe_" + name);
  fs::create_directories(dir);
  for (const auto& [file, text] : fresh.files) write_text(dir / file, text);
  return dir;
}

BpeTrainerOptions byte_level(int64_t size) {
  return {.kind = BpeKind::kByteLevel,
          .vocab_size = size,
          .special_tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
          .bos = "",
          .eos = "<|im_end|>",
          .pad = "<|endoftext|>"};
}

BpeTrainerOptions pieces(int64_t size) {
  return {.kind = BpeKind::kSentencePiece,
          .vocab_size = size,
          .special_tokens = {"<image>", "<pad>"},
          .bos = "<s>",
          .eos = "</s>",
          .pad = "<pad>"};
}

constexpr const char* kTexts[] = {"What colour is the circle?",
                                  " two  spaces\nand\ttabs ",
                                  "日本語 naïve café 😀",
                                  "x=1234;",
                                  "<|im_start|>user\nHi<|im_end|>",
                                  "USER: <image>\nWhat? ASSISTANT:",
                                  ""};

TEST(BpeLearnerTest, MergesTheMostFrequentPairFirstAndTiesGoToLowerIds) {
  BpeLearner learner({"a", "b", "c"});
  learner.add_word({0, 1, 2}, 3);  // abc
  learner.add_word({1, 2}, 2);     // bc
  learner.add_word({0, 0, 0}, 1);  // aaa: one merge, not two
  learner.learn(100, 1);
  EXPECT_EQ(learner.tokens(), (std::vector<std::string>{"a", "b", "c", "bc", "abc", "aa", "aaa"}));
  EXPECT_EQ(learner.merges(), (std::vector<BpeLearner::Merge>{{1, 2}, {0, 3}, {0, 0}, {5, 0}}));
}

TEST(BpeLearnerTest, StopsAtTheSizeOrWhenNothingRepeats) {
  BpeLearner small({"a", "b"});
  small.add_word({0, 1, 0, 1}, 5);
  small.learn(3);
  EXPECT_EQ(small.tokens().size(), 3U);
  BpeLearner rare({"a", "b"});
  rare.add_word({0, 1}, 1);
  rare.learn(10);
  EXPECT_EQ(rare.tokens().size(), 2U);
}

TEST(BpeTrainerTest, ByteLevelRoundTripsEveryTextAndKnowsItsSpecialTokens) {
  const Tokenizer tokenizer = Tokenizer::load(written(train_tokenizer(default_corpus(), byte_level(512)), "bytes"));
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  for (const char* text : kTexts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  EXPECT_EQ(tokenizer.encode("<|im_start|>"), (std::vector<int32_t>{510}));
  EXPECT_TRUE(tokenizer.is_special(511));
  EXPECT_EQ(tokenizer.special("eos_token"), "<|im_end|>");
  EXPECT_EQ(tokenizer.encode("a", {.add_special_tokens = true}), tokenizer.encode("a"));
  EXPECT_LE(tokenizer.encode("What colour is the circle?").size(), 12U);
}

TEST(BpeTrainerTest, SentencePieceRoundTripsEveryTextAndPutsBosInFront) {
  const Tokenizer tokenizer = Tokenizer::load(written(train_tokenizer(default_corpus(), pieces(640)), "pieces"));
  EXPECT_EQ(tokenizer.vocab_size(), 640);
  for (const char* text : {"What colour is the circle?", "日本語 naïve café 😀", "x=1234;", "a\nb"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_EQ(tokenizer.encode("a", {.add_special_tokens = true}).front(), 1);
  EXPECT_EQ(tokenizer.id_of("<image>"), 638);
  EXPECT_EQ(tokenizer.special("pad_token"), "<pad>");
}

TEST(BpeTrainerTest, ACorpusOfQuestionsMakesItsWordsFewTokens) {
  std::string corpus;
  for (const char* colour : {"red", "green", "blue", "yellow", "purple", "orange"}) {
    for (int i = 0; i < 20; ++i) corpus += std::string("What colour is the circle? ") + colour + "\n";
  }
  const Tokenizer tokenizer = Tokenizer::load(written(train_tokenizer(corpus, pieces(512)), "questions"));
  EXPECT_EQ(tokenizer.encode("What colour is the circle?").size(), 5U);  // the question mark belongs to its word
  EXPECT_EQ(tokenizer.encode("purple").size(), 1U);
}

TEST(BpeTrainerTest, TheSameTextGivesTheSameBytes) {
  EXPECT_EQ(train_tokenizer(default_corpus(), pieces(600)).files, train_tokenizer(default_corpus(), pieces(600)).files);
}

TEST(BpeTrainerTest, ASmallCorpusGivesASmallerVocabularyAndTooLittleRoomIsRefused) {
  EXPECT_EQ(train_tokenizer("one two", byte_level(5000)).size, 259);
  try {
    (void)train_tokenizer("one two", byte_level(200));
    FAIL() << "200 tokens cannot hold 256 bytes";
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "vocab_size 200: expected at least 259 (256 bytes and characters, 3 special tokens)");
  }
}

TEST(BpeTrainerTest, CorporaOfRowsGiveTheirTextsOnly) {
  const fs::path path = fs::path(testing::TempDir()) / "rows.jsonl";
  write_text(
      path,
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"images\":[\"a.png\"]}\n\n{\"query\":\"hi\"}\n");
  EXPECT_EQ(read_corpus(path.string()), "hello\nhi\n");
  write_text(path, "{\"query\":\"hi\"}\n{broken\n");
  try {
    (void)read_corpus(path.string());
    FAIL() << "a broken row was read";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("rows.jsonl row 2: line 1 column 2"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
