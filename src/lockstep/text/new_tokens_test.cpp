#include "lockstep/text/new_tokens.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(LOCKSTEP_FIXTURES) / "text";
const std::vector<std::string> kTokens = {"<box>", "</box>", "<a b>"};

std::string text_of(const NamedTexts& files, const std::string& name) {
  for (const auto& [one, text] : files) {
    if (one == name) return text;
  }
  return {};
}

TEST(NewTokens, GetTheNextIdsInEveryKindOfTokenizer) {
  for (const char* kind : {"qwen2", "qwen2_legacy", "llama2", "llama3", "sentencepiece/llava", "sentencepiece/plain",
                           "sentencepiece/internlm2", "sentencepiece/vicuna"}) {
    SCOPED_TRACE(kind);
    const auto dir = kFixtures / kind;
    const Tokenizer before = Tokenizer::load(dir);
    const NamedTexts files = files_with_tokens(dir, kTokens);
    const Tokenizer after = Tokenizer::load({dir, files});
    ASSERT_EQ(after.vocab_size(), before.vocab_size() + 3);
    for (size_t i = 0; i < kTokens.size(); ++i) {
      const auto id = static_cast<int32_t>(before.vocab_size()) + static_cast<int32_t>(i);
      EXPECT_EQ(after.id_of(kTokens[i]), id);
      EXPECT_TRUE(after.is_special(id));
      EXPECT_EQ(after.encode(kTokens[i], {.continues = true}), std::vector{id});
    }
    EXPECT_EQ(after.encode("What is this? né 12"), before.encode("What is this? né 12"));
    const auto ids = after.encode("x <box>1</box>y");
    EXPECT_EQ(after.decode(ids, /*skip_special_tokens=*/true).find("box"), std::string::npos);
    const std::string whole = after.decode(ids);  // some have spaces around
    EXPECT_LT(whole.find("<box>"), whole.find("</box>")) << whole;
    EXPECT_NE(whole.find("</box>"), std::string::npos) << whole;
  }
}

TEST(NewTokens, ThatAreThereChangeNothing) {
  const auto dir = kFixtures / "qwen2";
  const Tokenizer tokenizer = Tokenizer::load(dir);
  EXPECT_TRUE(files_with_tokens(dir, {}).empty());
  EXPECT_TRUE(files_with_tokens(dir, {"<|im_end|>"}).empty());
  const NamedTexts twice = files_with_tokens(dir, {"<x>", "<|im_end|>", "<x>"});
  EXPECT_EQ(Tokenizer::load({dir, twice}).vocab_size(), tokenizer.vocab_size() + 1);
}

/// A word of the vocabulary keeps its id, and is found in any text from then on.
TEST(NewTokens, OneOfTheVocabularyIsSpecialFromThenOn) {
  const auto dir = kFixtures / "qwen2";
  const Tokenizer before = Tokenizer::load(dir);
  const int32_t id = before.encode("the").at(0);
  const std::string word = before.token_of(id);
  const Tokenizer after = Tokenizer::load({dir, files_with_tokens(dir, {word})});
  EXPECT_EQ(after.id_of(word), id);
  EXPECT_TRUE(after.is_special(id));
  EXPECT_EQ(after.vocab_size(), before.vocab_size());
}

TEST(NewTokens, LeaveTheRestOfALargeFileAsItIs) {
  const auto dir = kFixtures / "qwen2";
  const std::string before = read_text(dir / "tokenizer.json");
  const std::string after = text_of(files_with_tokens(dir, kTokens), "tokenizer.json");
  const auto model = [](const std::string& text) { return text.substr(text.find("\"normalizer\"")); };
  EXPECT_EQ(model(after), model(before));
  const Json list = parse_json(after, "after").at("added_tokens");
  EXPECT_EQ(list.size(), parse_json(before, "before").at("added_tokens").size() + 3);
}

TEST(NewTokens, ATextThatCanBeNoneIsRefused) {
  for (const std::string& token : {std::string(), std::string(" \n"), std::string("\xff<"), std::string(2000, 'x')}) {
    try {
      (void)files_with_tokens(kFixtures / "qwen2", {"<fine>", token});
      ADD_FAILURE() << token << " was taken";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_NE(error.message().find("--new_special_tokens: expected a text"), std::string::npos) << error.message();
    }
  }
}

}  // namespace
}  // namespace lockstep
