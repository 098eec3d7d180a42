#include "lockstep/text/sentencepiece/piece_steps.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/text/sentencepiece/clean_up.h"
#include "lockstep/text/sentencepiece/test_piece_file.h"

namespace lockstep {
namespace {

using test_pieces::File;
using Ids = std::vector<int32_t>;

/// A folder with a tokenizer.model of its own, gone with the test.
class Folder {
 public:
  explicit Folder(const Json& config = {})
      : path_(std::filesystem::temp_directory_path() / ("piece_steps_test_" + std::to_string(getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    File file;
    file.normalizer = test_pieces::number_field(4, 0);
    file.add("▁", -5).add("a", -6).add("b", -7).add("▁a", -1).add("ab", -2).add_bytes();  // 3 4 5 6 7, bytes from 8
    write_text(path_ / "tokenizer.model", file.bytes());
    if (!config.is_null()) write("tokenizer_config.json", config);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder& write(const char* name, const Json& json) {
    write_json(path_ / name, json);
    return *this;
  }
  const std::filesystem::path& path() const { return path_; }
  Tokenizer load() const { return Tokenizer::load(path_); }
  std::string refusal() const {
    try {
      load();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
      EXPECT_LT(std::string(error.what()).size(), 3000U);
      return error.what();
    }
    return "";
  }

 private:
  std::filesystem::path path_;
};

constexpr int32_t kPieces = 264;  // of the model above

Json added(const std::string& content, const char* flag = nullptr) {
  Json token = {{"content", content}, {"special", true}};
  if (flag != nullptr) token[flag] = true;
  return token;
}

Json decoder(const Json& tokens) { return {{"added_tokens_decoder", tokens}}; }

TEST(PieceSteps, AModelAloneIsALlamaTokenizer) {
  const Folder folder;
  const Tokenizer tokenizer = folder.load();
  EXPECT_EQ(tokenizer.vocab_size(), kPieces);
  EXPECT_EQ(tokenizer.special("bos_token"), "<s>");
  EXPECT_EQ(tokenizer.special("eos_token"), "</s>");
  EXPECT_EQ(tokenizer.special("pad_token"), std::nullopt);
  EXPECT_EQ(tokenizer.encode("ab", {.add_special_tokens = true}), (Ids{1, 6, 5}));
  EXPECT_EQ(tokenizer.encode("ab", {.continues = true}), (Ids{7}));
  EXPECT_EQ(tokenizer.encode("</s>ab"), (Ids{2, 6, 5}));
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_FALSE(tokenizer.is_special(6));
  EXPECT_EQ(tokenizer.id_of("▁a"), 6);
  EXPECT_EQ(tokenizer.token_of(6), "▁a");
  EXPECT_EQ(tokenizer.token_of(-1) + tokenizer.token_of(kPieces), "");
  EXPECT_EQ(tokenizer.decode(Ids{6, 5, -1, 1 << 30, 6}), "ab a");
}

TEST(PieceSteps, BrokenTextIsRepaired) {
  const Folder folder;
  EXPECT_EQ(folder.load().encode("a\xE4\xBD"), folder.load().encode("a\xEF\xBF\xBD"));
}

TEST(PieceSteps, LegacySaysWhereSpacesArePut) {
  const Folder old;
  EXPECT_EQ(old.load().encode("<s>a a"), (Ids{1, 6, 6}));
  const Folder fresh(Json::object({{"legacy", false}}));
  EXPECT_EQ(fresh.load().encode("<s>a a"), (Ids{1, 4, 6}));
  EXPECT_EQ(fresh.load().encode("a<s> a"), (Ids{6, 1, 6}));
  EXPECT_EQ(fresh.load().encode("a", {.continues = true}), (Ids{4}));
  EXPECT_EQ(fresh.load().encode(""), (Ids{}));
  const Folder bare({{"legacy", false}, {"add_prefix_space", false}});
  EXPECT_EQ(bare.load().encode("a a"), (Ids{4, 6}));
}

TEST(PieceSteps, SpecialTokensStandAroundATextAsTheConfigSays) {
  const auto around = [](const Json& config) {
    const Folder folder(config);
    return folder.load().encode("a", {.add_special_tokens = true});
  };
  EXPECT_EQ(around({{"add_bos_token", false}, {"add_eos_token", true}}), (Ids{6, 2}));
  EXPECT_EQ(around({{"eos_token", "<end>"}, {"add_eos_token", true}}), (Ids{1, 6, kPieces}));
  const Folder none(Json::object({{"bos_token", nullptr}}));
  EXPECT_NE(none.refusal().find("bos_token is null"), std::string::npos);
}

TEST(PieceSteps, AddedTokensHaveTheIdsOfTheirFiles) {
  Folder folder(Json::object());
  folder.write("added_tokens.json", {{"<image>", kPieces}, {"<far>", kPieces + 10}, {"ab", kPieces + 1}});
  folder.write("special_tokens_map.json", {{"pad_token", added("<pad>")}, {"additional_special_tokens", {"<image>"}}});
  const Tokenizer tokenizer = folder.load();
  EXPECT_EQ(tokenizer.encode("<image><far>ab<pad>"), (Ids{kPieces, kPieces + 10, kPieces + 1, kPieces + 2}));
  EXPECT_EQ(tokenizer.vocab_size(), kPieces + 11);
  EXPECT_EQ(tokenizer.special("pad_token"), "<pad>");
  EXPECT_TRUE(tokenizer.is_special(kPieces));
  EXPECT_FALSE(tokenizer.is_special(kPieces + 10));
  EXPECT_EQ(tokenizer.decode(Ids{4, kPieces + 10, 4, kPieces, 4}), "a <far> a <image> a");
  EXPECT_EQ(tokenizer.decode(Ids{4, kPieces + 2, 4, kPieces}, true), "aa");
}

TEST(PieceSteps, AddedTokensTakeSpacesAndRefusePartsOfWords) {
  const Folder folder(
      decoder({{"264", added("<l>", "lstrip")}, {"265", added("<r>", "rstrip")}, {"266", added("x", "single_word")}}));
  const Tokenizer tokenizer = folder.load();
  EXPECT_EQ(tokenizer.encode("a  <l>a"), (Ids{6, 264, 6}));
  EXPECT_EQ(tokenizer.encode("a<r> \n a"), (Ids{6, 265, 6}));
  EXPECT_EQ(tokenizer.encode("a x a"), (Ids{6, 3, 266, 3, 6}));
  EXPECT_EQ(tokenizer.encode("axa"),
            (Ids{6, 8 + 'x', 6}));  // the text before it has taken it in, what follows is a part of its own
}

TEST(PieceSteps, TokenizerJsonGoesBeforeTheModel) {
  Folder folder;
  folder.write("tokenizer.json", {{"added_tokens", Json::array()},
                                  {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}});
  EXPECT_EQ(folder.load().encode("a"), (Ids{0}));
}

TEST(PieceSteps, SettingsThatAreNotFollowedAreRefused) {
  const auto said = [](const Json& config, const std::string& words) {
    const Folder folder(config);
    const std::string why = folder.refusal();
    EXPECT_NE(why.find(words), std::string::npos) << why;
  };
  said({{"tokenizer_class", "GemmaTokenizer"}}, "\"GemmaTokenizer\" is not supported with tokenizer.model alone");
  said({{"tokenizer_class", 3}}, "tokenizer_class");
  said({{"sp_model_kwargs", {{"enable_sampling", true}}}}, "\"enable_sampling\"");
  said({{"sp_model_kwargs", 1}}, "expected an object");
  said({{"split_special_tokens", true}}, "split_special_tokens");
  said({{"legacy", false}, {"unk_token", nullptr}}, "unk_token: expected a token");
  said({{"legacy", "no"}}, "\"legacy\": expected true or false");
  said(Json::array(), "expected an object");
  const Folder neutral({{"tokenizer_class", "LlamaTokenizerFast"},
                        {"sp_model_kwargs", {{"enable_sampling", false}, {"nbest_size", -1}, {"alpha", 0.1}}}});
  EXPECT_EQ(neutral.refusal(), "");
}

TEST(PieceSteps, IdsThatNoTokenCanHaveAreRefused) {
  for (const char* id : {"2147483647", "2147483648", "-1", "1e3", "", "264x", "99999999999999999999"}) {
    const Folder folder(decoder({{id, added("<x>")}}));
    EXPECT_NE(folder.refusal(), "") << id;
  }
  for (const Json& id : {Json(2147483647), Json(1LL << 31), Json(-1), Json("3"), Json(nullptr), Json(0.5)}) {
    Folder folder;
    folder.write("added_tokens.json", {{"<x>", id}});
    EXPECT_NE(folder.refusal(), "") << id;
  }
  const Folder wide(decoder({{"264", added(std::string(1025, 'x'))}}));
  EXPECT_NE(wide.refusal().find("at most 1024 bytes"), std::string::npos);
  Folder gap(Json{{"pad_token", "<pad>"}});
  gap.write("added_tokens.json", {{"<x>", kPieces + 1}});  // 265 tokens, so that <pad> would be 265 too
  EXPECT_NE(gap.refusal().find("is the one of \"<x>\""), std::string::npos);
}

TEST(PieceSteps, FilesThatAreNoObjectsAreRefused) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    for (const Json& json : {Json::array({1}), Json("x"), Json(1)}) {
      Folder folder;
      folder.write(name, json);
      EXPECT_NE(folder.refusal(), "") << name << " " << json;
    }
  }
  for (const char* key : {"bos_token", "additional_special_tokens", "added_tokens_decoder"}) {
    const Folder folder(Json{{key, 7}});
    EXPECT_NE(folder.refusal(), "") << key;
  }
}

TEST(PieceStream, TextComesAsSoonAsItIsCertain) {
  const Folder folder;
  const Tokenizer tokenizer = folder.load();
  StreamDecoder stream(tokenizer);
  EXPECT_EQ(stream.push(6), "a");
  EXPECT_EQ(stream.push(6), " a");
  EXPECT_EQ(stream.push(8 + 0xC3), "");
  EXPECT_EQ(stream.push(8 + 0xA9), "é");
  EXPECT_EQ(stream.push(2), "");  // skipped
  EXPECT_EQ(stream.push(8 + 0xC3), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push(6), "a");  // a new text
}

TEST(PieceStream, WhatASpecialTokenPutsASpaceBeforeIsHeldBack) {
  const Folder folder;
  const Tokenizer tokenizer = folder.load();
  StreamDecoder stream(tokenizer, false);
  EXPECT_EQ(stream.push(1), "<s>");
  EXPECT_EQ(stream.push(6), "");
  EXPECT_EQ(stream.push(2), " a</s>");
  EXPECT_EQ(stream.push(6), "");
  EXPECT_EQ(stream.finish(), "a");
}

TEST(CleanUp, RulesFollowOneAnotherAcrossPushes) {
  const auto cleaned = [](const std::string& text) {
    CleanUp clean;
    std::string out;
    for (const char c : text) out += clean.push({&c, 1});
    return out + clean.finish();
  };
  EXPECT_EQ(cleaned("a , b . c"), "a, b. c");
  EXPECT_EQ(cleaned("it 's do n't we 've '  ' x"), "it's don't we've''x");
  EXPECT_EQ(cleaned("x ' s"), "x's");
  EXPECT_EQ(cleaned("a "), "a ");
  EXPECT_EQ(cleaned("  ."), " .");
}

}  // namespace
}  // namespace lockstep
