#include "lockstep/text/tokenizer.h"

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/text/regex.h"

namespace lockstep {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(LOCKSTEP_FIXTURES) / "text";

std::vector<Json> read_lines(const std::filesystem::path& path) {
  std::vector<Json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(parse_json(line, path.string()));
  return out;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special_tokens) {
  StreamDecoder decoder(tokenizer, skip_special_tokens);
  std::string out;
  for (const int32_t id : ids) out += decoder.push(id);
  return out + decoder.finish();
}

// A tokenizer.json in a folder of its own, gone with the test.
class Folder {
 public:
  explicit Folder(const Json& tokenizer)
      : path_(std::filesystem::temp_directory_path() / ("text_test_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
    write_json(path_ / "tokenizer.json", tokenizer);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

Json small(const Json& vocab, const Json& merges) {
  return {{"added_tokens", Json::array()}, {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

Json added(const std::string& content, const std::string& flag = "") {
  Json token = {{"id", 90},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  if (!flag.empty()) token[flag] = true;
  return token;
}

TEST(Tokenizer, WhatStandsBehindAByteOfZeroIsNotLeftOut) {
  const Folder folder(small({{"a", 0}}, Json::array()));
  const std::string whole = read_text(folder.path() / "tokenizer.json");
  EXPECT_NO_THROW(Tokenizer::load(folder.path()));
  for (const std::string& tail : {std::string(1, '\0'), std::string("\0\"", 2)}) {
    write_text(folder.path() / "tokenizer.json", whole + tail);
    EXPECT_THROW(Tokenizer::load(folder.path()), UserError);
  }
}

class Oracle : public testing::TestWithParam<const char*> {};

TEST_P(Oracle, EncodesAndDecodesAsHuggingFaceDoes) {
  const auto dir = kFixtures / GetParam();
  const Tokenizer tokenizer = Tokenizer::load(dir);
  for (const Json& row : read_lines(dir / "fuzz.jsonl")) {
    const auto ids = row.at("ids").get<std::vector<int32_t>>();
    const auto decoded = row.at("decoded").get<std::string>();
    ASSERT_EQ(tokenizer.encode(row.at("text").get<std::string>()), ids) << row.at("text");
    ASSERT_EQ(tokenizer.decode(ids), decoded);
    ASSERT_EQ(tokenizer.decode(ids, true), row.value("decoded_skip", decoded));
  }
}

TEST_P(Oracle, DecodesRandomIdsAndStreamsTheSame) {
  const auto dir = kFixtures / GetParam();
  const Tokenizer tokenizer = Tokenizer::load(dir);
  for (const Json& row : read_lines(dir / "decode.jsonl")) {
    const auto ids = row.at("ids").get<std::vector<int32_t>>();
    for (const bool skip : {false, true}) {
      const auto expected = row.at(skip ? "decoded_skip" : "decoded").get<std::string>();
      ASSERT_EQ(tokenizer.decode(ids, skip), expected);
      ASSERT_EQ(stream(tokenizer, ids, skip), expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Oracle,
                         testing::Values("qwen2", "llama3", "llama2", "sentencepiece/llava", "sentencepiece/vicuna",
                                         "sentencepiece/internlm2", "sentencepiece/symbols", "sentencepiece/plain"));

TEST(Tokenizer, Qwen2LoadsFromVocabAndMergesAlone) {
  const Tokenizer whole = Tokenizer::load(kFixtures / "qwen2"), legacy = Tokenizer::load(kFixtures / "qwen2_legacy");
  EXPECT_EQ(legacy.vocab_size(), whole.vocab_size());
  for (const Json& row : read_lines(kFixtures / "qwen2" / "fuzz.jsonl")) {
    ASSERT_EQ(legacy.encode(row.at("text").get<std::string>()), row.at("ids").get<std::vector<int32_t>>());
  }
}

TEST(Tokenizer, SpecialTokensGoBeforeTheTextAndHaveNames) {
  const Tokenizer tokenizer = Tokenizer::load(kFixtures / "llama2");
  const auto ids = tokenizer.encode("a", {.add_special_tokens = true});
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 263}));
  EXPECT_EQ(tokenizer.special("bos_token"), "<s>");
  EXPECT_EQ(tokenizer.id_of("<s>"), 1);
  EXPECT_EQ(tokenizer.token_of(1), "<s>");
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_FALSE(tokenizer.is_special(263));
  EXPECT_EQ(tokenizer.token_of(1 << 20), "");
}

TEST(Tokenizer, AContinuingTextGetsNoPrefix) {
  const Tokenizer tokenizer = Tokenizer::load(kFixtures / "llama2");
  const auto whole = tokenizer.encode("a"), rest = tokenizer.encode("a", {.continues = true});
  EXPECT_EQ(tokenizer.token_of(whole.at(0)), "▁a");
  EXPECT_EQ(tokenizer.token_of(rest.at(0)), "a");
}

TEST(Tokenizer, BrokenUtf8BecomesTheReplacementCharacter) {
  const Tokenizer tokenizer = Tokenizer::load(kFixtures / "qwen2");
  EXPECT_EQ(tokenizer.encode("a\xE4\xBD!"), tokenizer.encode("a\xEF\xBF\xBD!"));
}

TEST(Tokenizer, ManyThreadsMayShareIt) {
  const Tokenizer tokenizer = Tokenizer::load(kFixtures / "qwen2");
  const std::string text = "The quick brown fox, 12345 times; 多语言 👩‍💻";
  const auto expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) count += tokenizer.encode(text) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(Tokenizer, AddedTokensTakeSpacesAndRefusePartsOfWords) {
  Json file = small({{"a", 0}, {"b", 1}, {" ", 2}, {"ab", 3}}, Json::array({"a b"}));
  file["added_tokens"] = Json::array({added("<l>", "lstrip"), added("<r>", "rstrip"), added("x", "single_word")});
  const Folder folder(file);
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("ab  <l> a"), (std::vector<int32_t>{3, 4, 2, 0}));  // spaces before <l> belong to it
  EXPECT_EQ(tokenizer.encode("a <r>  a"), (std::vector<int32_t>{0, 2, 5, 0}));
  EXPECT_EQ(tokenizer.encode("a x"), (std::vector<int32_t>{0, 2, 6}));
  EXPECT_EQ(tokenizer.encode("axa"), (std::vector<int32_t>{0, 0}));  // x inside a word is unknown, and dropped
  EXPECT_EQ(tokenizer.vocab_size(), 7);                              // ids continue the vocabulary
}

TEST(Tokenizer, MetaspacePrefixesByScheme) {
  Json file = small({{"▁", 0}, {"a", 1}, {"▁a", 2}}, Json::array({Json::array({"▁", "a"})}));
  const auto encode = [&](const char* scheme, const char* text) {
    file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", scheme}, {"split", true}};
    file["added_tokens"] = Json::array({added("<s>")});
    const Folder folder(file);
    return Tokenizer::load(folder.path()).encode(text);
  };
  EXPECT_EQ(encode("always", "a<s>a"), (std::vector<int32_t>{2, 3, 2}));
  EXPECT_EQ(encode("first", "a<s>a"), (std::vector<int32_t>{2, 3, 1}));
  EXPECT_EQ(encode("never", "a a"), (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(encode("always", "a  a"), (std::vector<int32_t>{2, 0, 2}));
}

TEST(Tokenizer, WhatIsNotSupportedIsNamed) {
  const auto message = [](const Json& file) -> std::string {
    const Folder folder(file);
    try {
      Tokenizer::load(folder.path());
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
      return e.what();
    }
    return "loaded";
  };
  Json file = small({{"a", 0}}, Json::array());
  file["normalizer"] = {{"type", "Nmt"}};
  EXPECT_NE(message(file).find("tokenizer.json: normalizer: type \"Nmt\" is not supported"), std::string::npos);
  file = small({{"a", 0}}, Json::array({"a b"}));
  EXPECT_NE(message(file).find("model.merges: entry 0: \"b\" is not in the vocabulary"), std::string::npos);
  file["model"]["vocab"] = Json::array({Json::array({"a", 0.5})});
  file["model"]["type"] = "Unigram";
  EXPECT_NE(message(file).find("type \"Unigram\" is not supported"), std::string::npos);
}

TEST(StreamDecoder, HoldsBackPartsOfACharacter) {
  const Tokenizer tokenizer = Tokenizer::load(kFixtures / "llama2");
  StreamDecoder decoder(tokenizer);
  for (const char* token : {"<0xF0>", "<0x9F>", "<0x9A>", "<0x80>"})
    EXPECT_EQ(decoder.push(tokenizer.id_of(token).value()), "");
  EXPECT_EQ(decoder.push(tokenizer.id_of("a").value()), "🚀a");
  EXPECT_EQ(decoder.push(tokenizer.id_of("▁a").value()), " a");
  EXPECT_EQ(decoder.push(tokenizer.id_of("<0xF0>").value()), "");
  EXPECT_EQ(decoder.finish(), "\xEF\xBF\xBD");
}

/// What loading a tokenizer and encoding and decoding `text` ends with; "" when it does not.
std::string refusal(const Json& file, const std::string& text) {
  const Folder folder(file);
  try {
    const Tokenizer tokenizer = Tokenizer::load(folder.path());
    tokenizer.decode(tokenizer.encode(text), false);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint) << error.what();
    EXPECT_LT(std::string(error.what()).size(), 4096U);
    return error.message();
  }
  return "";
}

Json with(const std::string& key, const Json& value) {
  Json file = small({{"a", 0}, {"b", 1}, {"ab", 2}}, Json::array({"a b"}));
  file[key] = value;
  return file;
}

Json split(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
}

Json replace(const std::string& from, const std::string& to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}

TEST(Tokenizer, AnExpressionThatTriesEveryWayGivesUp) {
  const std::string many = std::string(30'000, 'a') + "cb";  // the b lest its lack is seen at once
  EXPECT_EQ(refusal(with("pre_tokenizer", split("a+")), many), "");
  for (const char* regex : {"(a+)+b", "(a|aa)+b", "(a*)*b", "(?:a?){60}a{60}b", "(?:a(?R)?)+b", "a*a*a*a*b"}) {
    const std::string why = refusal(with("pre_tokenizer", split(regex)), many);
    EXPECT_NE(why.find("gave up"), std::string::npos) << regex << ": " << why;
  }
  EXPECT_NE(refusal(with("pre_tokenizer", split(std::string(100'000, 'a'))), "a").find("does not compile"),
            std::string::npos);
}

TEST(Tokenizer, ATextThatIsLongerThanAnExpressionMustBeDoneWithIsAtFaultItself) {
  const Folder folder(with("pre_tokenizer", split("(a+)+b")));
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const auto code = [&](size_t letters) {
    try {
      (void)tokenizer.encode(std::string(letters, 'a') + "cb");
    } catch (const UserError& error) {
      EXPECT_NE(error.message().find(std::to_string(letters + 2) + " bytes"), std::string::npos) << error.message();
      return error.code();
    }
    return ExitCode::kOk;
  };
  EXPECT_EQ(code(30'000), ExitCode::kCheckpoint);
  EXPECT_EQ(code(70'000), ExitCode::kData);
}

TEST(Tokenizer, ExpressionsOfOneTextShareItsTime) {
  const Regex regex("(a|aa)+b|c", "here");
  const std::string slow = std::string(20, 'a') + "db";
  EXPECT_TRUE(regex.find_all(slow).empty());
  {
    RegexBudget none(slow.size(), 0);
    const auto many = [&] {
      for (int i = 0; i < 5'000; ++i) (void)regex.find_all(slow);
    };
    EXPECT_THROW(many(), UserError) << "in many pieces, of which each takes no time";
  }
  std::string found;
  for (int i = 0; i < 200; ++i) found += std::string(20, 'a') + "c";
  EXPECT_EQ(regex.find_all(found).size(), 200U);
  RegexBudget none(0, 0);
  EXPECT_THROW((void)regex.find_all(found), UserError) << "behind places where nothing was found";
}

TEST(Tokenizer, ALongRunThatMatchesNothingIsFoundBehindTheFirstPlaces) {
  // 1024 places are looked at in one go; what stands behind them, and on the border, is found all the same.
  for (const size_t before : {size_t{0}, size_t{1023}, size_t{1024}, size_t{1025}, size_t{5000}}) {
    for (const std::string unit : {"b", "ä"}) {
      std::string text;
      while (text.size() < before) text += unit;
      Json file = small({{"a", 0}, {"b", 1}, {"ä", 2}, {"aa", 3}}, Json::array({"a a"}));
      file["pre_tokenizer"] = split("a(?=ab)");  // without the cut "aa" would be one token
      const Folder folder(file);
      const auto ids = Tokenizer::load(folder.path()).encode(text + "aab");
      ASSERT_EQ(ids.size(), text.size() / unit.size() + 3) << before;
      EXPECT_EQ(std::vector<int32_t>(ids.end() - 3, ids.end()), (std::vector<int32_t>{0, 0, 1})) << before;
    }
  }
}

TEST(Tokenizer, StepsThatMakeATextGrowAreRefused) {
  Json doubling = Json::array();
  for (int i = 0; i < 40; ++i) doubling.push_back(replace("a", "aa"));
  const std::string growth = "bytes of a text of";
  const std::string text(2000, 'a');
  EXPECT_NE(refusal(with("normalizer", {{"type", "Sequence"}, {"normalizers", doubling}}), text).find(growth),
            std::string::npos);
  EXPECT_NE(refusal(with("decoder", {{"type", "Sequence"}, {"decoders", doubling}}), text).find(growth),
            std::string::npos);
  EXPECT_NE(refusal(with("normalizer", replace("a", std::string(1000, 'a'))), text).find(growth), std::string::npos);
  Json spaces = Json::array();
  for (int i = 0; i < 40; ++i)
    spaces.push_back({{"type", "Metaspace"}, {"replacement", "  "}, {"prepend_scheme", "never"}, {"split", false}});
  EXPECT_NE(refusal(with("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", spaces}}), "a b a b").find(growth),
            std::string::npos);
  Json steps = Json::array();
  for (int i = 0; i < 65; ++i) steps.push_back(replace("x", "y"));
  EXPECT_NE(refusal(with("normalizer", {{"type", "Sequence"}, {"normalizers", steps}}), "a").find("at most 64 steps"),
            std::string::npos);
  EXPECT_NE(refusal(with("normalizer", {{"type", "Prepend"}, {"prepend", std::string(1 << 20, 'a')}}), "a")
                .find("at most 1024 bytes"),
            std::string::npos);
}

TEST(Tokenizer, IdsThatNoTokenHasAreRefused) {
  EXPECT_NE(refusal(small({{"a", 2'000'000'000}}, Json::array()), "a").find("expected ids up to"), std::string::npos);
  EXPECT_NE(refusal(small({{"a", -1}}, Json::array()), "a").find("found -1"), std::string::npos);
  EXPECT_NE(refusal(small({{"a", 1e300}}, Json::array()), "a"), "");
  EXPECT_NE(refusal(small({{"a", 18446744073709551615ULL}}, Json::array()), "a"), "");
  for (const Json& id : {Json(-1), Json(3), Json(2'000'000'000), Json(1ULL << 40), Json("x"), Json(1.5)}) {
    EXPECT_NE(refusal(with("post_processor", {{"type", "BertProcessing"}, {"cls", {"a", id}}, {"sep", {"b", 1}}}), "a"),
              "")
        << id;
  }
}

TEST(Tokenizer, MergesThatAreNoListAreRefused) {
  for (const Json& merges : {Json(5), Json(), Json("a b")}) {
    Json file = small({{"a", 0}, {"b", 1}, {"ab", 2}}, Json::array());
    file["model"]["merges"] = merges;
    EXPECT_NE(refusal(file, "ab").find("model.merges: expected a list, found"), std::string::npos) << merges;
  }
}

TEST(Tokenizer, AFrameOfManyTokensIsRefused) {
  const Json token = {{"SpecialToken", {{"id", "a"}, {"type_id", 0}}}};
  Json single = Json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}), ids = Json::array();
  for (int i = 0; i < 1000; ++i) {
    single.push_back(token);
    ids.push_back(0);
  }
  const Json frame = {{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", {{"a", {{"ids", ids}}}}}};
  EXPECT_NE(refusal(with("post_processor", frame), "a").find("at most 4096 special tokens"), std::string::npos);
  Json ends = Json::array();
  for (int i = 0; i < 5000; ++i) ends.push_back({{"type", "BertProcessing"}, {"cls", {"a", 0}}, {"sep", {"b", 1}}});
  EXPECT_NE(refusal(with("post_processor", {{"type", "Sequence"}, {"processors", ends}}), "a").find("at most 4096"),
            std::string::npos);
}

TEST(Tokenizer, AStripOfNothingEnds) {
  const Json step = {{"type", "Strip"}, {"content", ""}, {"start", INT64_MAX}, {"stop", INT64_MAX}};
  EXPECT_EQ(refusal(with("decoder", step), "ab"), "");
}

TEST(Tokenizer, FilesThatAreNoTokenizerAreRefused) {
  for (const char* text : {"null", "[]", "1", "\"x\"", "{}", "{\"model\": []}"}) {
    EXPECT_NE(refusal(Json::parse(text), "a"), "") << text;
  }
  Json deep = "a";
  for (int i = 0; i < 250; ++i) deep = {{"type", "Sequence"}, {"normalizers", Json::array({deep})}};
  EXPECT_NE(refusal(with("normalizer", deep), "a").find("nested more than 256 deep"), std::string::npos);
  Json many = Json::object();
  for (int i = 0; i < 5000; ++i) many[std::to_string(i)] = i;
  EXPECT_NE(refusal(with("other", many), "a").find("more than 4096 keys"), std::string::npos);
}

TEST(LegacyTokenizer, WrongKindsAndIdsAreRefused) {
  const auto refused = [](const std::string& vocab, const std::string& config) {
    const Folder folder(Json::object());
    std::filesystem::remove(folder.path() / "tokenizer.json");
    write_text(folder.path() / "vocab.json", vocab);
    write_text(folder.path() / "merges.txt", "a b\n");
    write_text(folder.path() / "tokenizer_config.json", config);
    try {
      Tokenizer::load(folder.path());
    } catch (const UserError& error) {
      return error.code() == ExitCode::kCheckpoint;
    }
    return false;
  };
  const std::string config = R"({"tokenizer_class": "Qwen2Tokenizer"})", vocab = R"({"a": 0, "b": 1, "ab": 2})";
  EXPECT_FALSE(refused(vocab, config));
  EXPECT_TRUE(refused(R"({"a": -1, "b": 1, "ab": 2})", config));
  EXPECT_TRUE(refused(R"({"a": 1e9, "b": 1, "ab": 2})", config));
  EXPECT_TRUE(refused(R"({"a": 4294967296, "b": 1, "ab": 2})", config));
  EXPECT_TRUE(refused(vocab, R"({"tokenizer_class": 1})"));
  EXPECT_TRUE(refused(vocab, R"([])"));
  EXPECT_TRUE(refused(vocab, R"({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": {"9": "x"}})"));
}

}  // namespace
}  // namespace lockstep
