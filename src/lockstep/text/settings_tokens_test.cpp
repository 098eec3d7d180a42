#include "lockstep/text/settings_tokens.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/text/tokenizer.h"

namespace lockstep {
namespace {

/// Two letters and one added token.
constexpr const char* kTokenizer = R"({"added_tokens": [{"id": 2, "content": "<s>", "special": true}],
  "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": null,
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";

NamedTexts files(const std::string& config, const std::string& map = "{}", const std::string& ids = "{}") {
  return {{"tokenizer.json", kTokenizer},
          {"tokenizer_config.json", config},
          {"special_tokens_map.json", map},
          {"added_tokens.json", ids}};
}

std::vector<int32_t> ids_of(const std::string& text, const NamedTexts& texts) {
  return Tokenizer::load(TokenizerFolder("folder", texts)).encode(text);
}

// Expected: transformers 5.23 on the same files.
TEST(SettingsTokens, WhatTheFilesBesideATokenizerAddIsOneToken) {
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ids_of("a<s>b", files("{}")), (Ids{0, 2, 1}));
  EXPECT_EQ(ids_of("a<new>b", files(R"({"additional_special_tokens": ["<new>"]})")), (Ids{0, 3, 1}));
  EXPECT_EQ(ids_of("a<new>b", files(R"({"extra_special_tokens": ["<new>"]})")), (Ids{0, 3, 1}));
  EXPECT_EQ(ids_of("a<img>b", files(R"({"extra_special_tokens": {"image_token": "<img>"}})")), (Ids{0, 3, 1}));
  EXPECT_EQ(ids_of("<pad>b", files(R"({"pad_token": "<pad>"})")), (Ids{3, 1}));
  EXPECT_EQ(ids_of("<x><y>", files("{}", "{}", R"({"<y>": 4, "<x>": 3})")), (Ids{3, 4}));
  EXPECT_EQ(ids_of("<x>", files(R"({"added_tokens_decoder": {"2": {"content": "<s>"}, "3": {"content": "<x>"}}})")),
            (Ids{3}));
  EXPECT_EQ(ids_of("a", files(R"({"pad_token": "a"})")), (Ids{0})) << "a word of the vocabulary keeps its id";
}

/// Rows of tests/oracles/make_token_flags.py.
TEST(SettingsTokens, FlagsThatAddedTokensDecoderGivesCountBeforeThoseOfTheTokenizer) {
  std::ifstream in(std::filesystem::path(LOCKSTEP_FIXTURES) / "text" / "token_flags.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  const Json tokenizers = parse_json(line, "token_flags.jsonl");
  int rows = 0;
  while (std::getline(in, line)) {
    const Json row = parse_json(line, "token_flags.jsonl");
    const Tokenizer tokenizer = Tokenizer::load(
        TokenizerFolder("folder", {{"tokenizer.json", tokenizers.at(row.at("tokenizer").get<std::string>()).dump()},
                                   {"tokenizer_config.json", row.at("config").dump()}}));
    for (size_t i = 0; i < row.at("texts").size(); ++i) {
      const auto ids = row["ids"][i].get<std::vector<int32_t>>();
      EXPECT_EQ(tokenizer.encode(row["texts"][i].get<std::string>()), ids) << row;
      EXPECT_EQ(tokenizer.decode(ids, /*skip_special_tokens=*/true), row["skipped"][i].get<std::string>()) << row;
    }
    ++rows;
  }
  EXPECT_EQ(rows, 68);
}

TEST(SettingsTokens, TheMapHasTheLastWordWhereNoDecoderStands) {
  const auto named = [](const std::string& config) {
    return named_tokens(
        TokenizerFolder("folder", files(config, R"({"eos_token": "<m>", "pad_token": {"content": "<p>"}})")));
  };
  const NamedTokens legacy = named(R"({"eos_token": "<c>", "image_token": "<i>"})");
  EXPECT_EQ(legacy, (NamedTokens{{"eos_token", "<m>"}, {"image_token", "<i>"}, {"pad_token", "<p>"}}));
  const NamedTokens decoded = named(R"({"eos_token": "<c>", "added_tokens_decoder": {}})");
  EXPECT_EQ(decoded, (NamedTokens{{"eos_token", "<c>"}, {"pad_token", "<p>"}}));
}

}  // namespace
}  // namespace lockstep
