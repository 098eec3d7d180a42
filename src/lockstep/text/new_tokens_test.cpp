#include "lockstep/text/new_tokens.h"

#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(LOCKSTEP_FIXTURES) / "text";
const std::vector<std::string> kTokens = {"<box>", "</box>", "<a b>"};

/// A tokenizer cannot be given these, and is told so in such words.
void expect_refusal(const std::filesystem::path& dir, const std::vector<std::string>& tokens, ExitCode code,
                    const std::string& words) {
  try {
    (void)files_with_tokens(dir, tokens);
    ADD_FAILURE() << "taken";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
  }
}

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

class NewTokensOfAFolder : public InTestFolder {
 protected:
  /// A tokenizer of the fixtures, with this as one of the files beside it.
  void put(const std::string& name, const std::string& text) const {
    std::filesystem::copy(kFixtures / "qwen2", folder_,
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    std::filesystem::remove(folder_ / name);
    script(name, text, /*executable=*/false);
  }
};

/// Ids follow the order of the list.
TEST_F(NewTokensOfAFolder, OneThatWasNotSpecialKeepsItsPlace) {
  Json json = parse_json(read_text(kFixtures / "qwen2" / "tokenizer.json"), "fixture");
  const std::string first = "<tool_call>";
  ASSERT_EQ(json["added_tokens"][14]["content"], first);
  put("tokenizer.json", json.dump());
  const Tokenizer before = Tokenizer::load(folder_);
  const Tokenizer after = Tokenizer::load({folder_, files_with_tokens(folder_, {first, "<box>"})});
  EXPECT_FALSE(before.is_special(*before.id_of(first)));
  EXPECT_TRUE(after.is_special(*after.id_of(first)));
  for (int32_t id = 0; id < before.vocab_size(); ++id) EXPECT_EQ(after.token_of(id), before.token_of(id)) << id;
}

/// Readers of tokenizer.json would give a new token an id that another file has given away.
TEST_F(NewTokensOfAFolder, AnIdOfTwoTokensIsNamed) {
  const auto next = static_cast<int32_t>(Tokenizer::load(kFixtures / "qwen2").vocab_size());
  put("added_tokens.json", Json({{"<img>", next}}).dump());
  expect_refusal(folder_, {"<box>"}, ExitCode::kCheckpoint, "\"<box>\" to have the id");
}

/// As readers of tokenizer.json number what is added, it would take the id of a word.
TEST_F(NewTokensOfAFolder, GapsAmongIdsAreNamed) {
  Json json = parse_json(read_text(kFixtures / "qwen2" / "tokenizer.json"), "fixture");
  json["added_tokens"] = Json::array();
  Json& vocab = json["model"]["vocab"];
  vocab["far"] = static_cast<int64_t>(vocab.size()) + 100;
  put("tokenizer.json", json.dump());
  expect_refusal(folder_, {"<box>"}, ExitCode::kCheckpoint, "\"<box>\" to have the id");
}

TEST_F(NewTokensOfAFolder, AFileBesideItThatIsNoObjectIsNamed) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    put(name, "[1]");
    expect_refusal(folder_, {"<box>"}, ExitCode::kCheckpoint, name);
    std::filesystem::remove(folder_ / name);
  }
}

TEST(NewTokens, ATextThatCanBeNoneIsRefused) {
  for (const std::string& token : {std::string(), std::string(" \n"), std::string("\xff<"), std::string(2000, 'x')}) {
    expect_refusal(kFixtures / "qwen2", {"<fine>", token}, ExitCode::kUsage, "--new_special_tokens: expected a text");
  }
}

}  // namespace
}  // namespace lockstep
