#include "lockstep/base/json.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class JsonFiles : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::path(testing::TempDir()) / ("lockstep_json_" + std::to_string(getpid()));
};

/// What the action throws, as "code: message".
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return std::to_string(static_cast<int>(error.code())) + ": " + error.message();
  }
  return "nothing thrown";
}

TEST(ParseJson, KeepsKeyOrderAndLargeNumbers) {
  const Json value = parse_json(R"({"z": 1, "a": 1000000000000000019884624838656, "m": "世界"})", "c");
  EXPECT_EQ(value.begin().key(), "z");
  EXPECT_DOUBLE_EQ(value["a"].get<double>(), 1e30);
  EXPECT_EQ(value["m"].get<std::string>(), "世界");
}

TEST(ParseJson, NamesLineAndColumn) {
  EXPECT_EQ(refusal([] { parse_json("{\n  \"a\": 1,\n  \"b\": oops\n}", "config.json"); }),
            "4: config.json: line 3 column 8: not valid JSON (25 bytes read)");
  EXPECT_EQ(refusal([] { parse_json("x", "f"); }), "4: f: line 1 column 1: not valid JSON (1 bytes read)");
}

TEST(ParseJson, ATruncatedTextPointsAtItsEnd) {
  EXPECT_EQ(refusal([] { parse_json("{\"a\": [1, 2", "f"); }),
            "4: f: line 1 column 12: not valid JSON (11 bytes read)");
  EXPECT_EQ(refusal([] { parse_json("", "f"); }), "4: f: line 1 column 1: not valid JSON (0 bytes read)");
}

TEST(ParseJson, RefusesBytesThatAreNotUtf8AndTextAfterTheEnd) {
  EXPECT_EQ(refusal([] { parse_json("\"\xff\"", "f"); }).substr(0, 5), "4: f:");
  EXPECT_EQ(refusal([] { parse_json("{} {}", "f"); }).substr(0, 5), "4: f:");
  for (const std::string& tail : {std::string(1, '\0'), std::string("\0{", 2), std::string(4096, '\0')}) {
    EXPECT_NE(
        refusal([&] { parse_json("{}" + tail, "f"); }).find("4: f: line 1 column 3: not valid JSON: a byte of zero"),
        std::string::npos);
  }
}

TEST(ParseJson, ANumberThatNoDoubleHoldsIsOurError) {
  const std::string text = refusal([] { parse_json("[1e999]", "f"); });
  EXPECT_EQ(text.substr(0, 38), "4: f: line 1 column 6: not valid JSON:") << text;
  EXPECT_LT(refusal([] { parse_json("1e9" + std::string(100'000, '9'), "f"); }).size(), 1000U);
}

TEST(ParseJson, WhatIsNestedTooDeepIsRefusedWhereItPassesTheLimit) {
  const auto nested = [](size_t depth, const std::string& open, const std::string& close) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    text += "1";
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  EXPECT_EQ(parse_json(nested(256, "[", "]"), "f").size(), 1U);
  EXPECT_EQ(refusal([&] { parse_json(nested(257, "[", "]"), "f"); }),
            "4: f: line 1 column 257: not valid JSON: nested more than 256 deep");
  for (const size_t depth : {size_t{100'000}, size_t{10'000'000}}) {
    EXPECT_EQ(refusal([&] { parse_json(std::string(depth, '['), "f"); }),
              "4: f: line 1 column 257: not valid JSON: nested more than 256 deep");
    EXPECT_TRUE(parse_json_or_discard(nested(depth / 100, "{\"a\":", "}")).is_discarded());
  }
}

TEST(ParseJson, WhatGrowsInMemoryIsRefused) {
  std::string text = "[";
  for (int i = 0; i < 1000; ++i) text += "[],";
  text += "0]";
  EXPECT_EQ(parse_json(text, "f").size(), 1001U);
  const std::string refused = refusal([&] { parse_json(text, "f", {.memory = 64 << 10}); });
  EXPECT_NE(refused.find("not valid JSON: needs more than 0 MiB of memory"), std::string::npos) << refused;
}

TEST(ParseJson, AKeyThatStandsTwiceKeepsItsPlaceAndTakesTheLastValue) {
  // Few keys are looked at one by one, many by a table.
  for (const int count : {2, 1000}) {
    std::string text = "{\"again\": 1";
    for (int i = 0; i < count; ++i) text += ", \"key" + std::to_string(i) + "\": " + std::to_string(i);
    text += ", \"again\": 2}";
    const Json value = parse_json(text, "f");
    EXPECT_EQ(value, Json::parse(text));
    EXPECT_EQ(value.begin().key(), "again");
    EXPECT_EQ(value.at("again"), 2);
    const std::string refused = refusal([&] { parse_json(text, "f", {.refuses_twice_named = true}); });
    EXPECT_NE(refused.find("\"again\" stands there twice"), std::string::npos) << refused;
  }
  EXPECT_EQ(parse_json(R"({"a": {"x": 1, "x": 2}})", "f", {.refuses_twice_named = true})["a"]["x"], 2);
}

TEST(ParseJson, AMillionKeysTakeNoLongerThanAMillionItems) {  // quadratic, it would be an hour
  std::string text = "{\"a\": 0";
  for (int i = 0; i < 1'000'000; ++i) text += ",\"" + std::to_string(i) + "\":" + std::to_string(i);
  EXPECT_EQ(parse_json(text + "}", "f").size(), 1'000'001U);
}

TEST(ParseCbor, RefusesWhatIsNestedOrPromisesMoreThanItHolds) {
  std::string bytes;
  Json::to_cbor(Json{{"a", {1, 2.5, "x", nullptr}}}, bytes);
  EXPECT_EQ(parse_cbor_or_discard(bytes, {.depth = 3}), Json({{"a", {1, 2.5, "x", nullptr}}}));
  EXPECT_TRUE(parse_cbor_or_discard(bytes, {.depth = 1}).is_discarded());
  EXPECT_TRUE(parse_cbor_or_discard(std::string(100'000, '\x81'), {.depth = 32}).is_discarded());
  EXPECT_TRUE(parse_cbor_or_discard(std::string("\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", 9), {}).is_discarded());
}

TEST_F(JsonFiles, RoundTrips) {
  const auto path = folder_ / "a.json";
  const Json value = parse_json(R"({"b": [1, 2.5, null], "a": {"x": "é\n"}})", "literal");
  write_json(path, value);
  EXPECT_EQ(read_json(path), value);
  EXPECT_EQ(read_text(path),
            "{\n  \"b\": [\n    1,\n    2.5,\n    null\n  ],\n  \"a\": {\n    \"x\": \"é\\n\"\n  }\n}\n");
}

TEST_F(JsonFiles, AByteThatIsNotUtf8IsReplacedNotThrown) {
  const auto path = folder_ / "a.json";
  write_json(path, Json("half \xe4\xb8"), -1);
  EXPECT_EQ(read_text(path), "\"half \xef\xbf\xbd\"\n");
}

TEST_F(JsonFiles, WritingReplacesTheWholeFileAndLeavesNothingElse) {
  const auto path = folder_ / "a.txt";
  write_text(path, "a long first text");
  write_text(path, "short");
  EXPECT_EQ(read_text(path), "short");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(JsonFiles, ThreadsThatWriteOneFileLeaveOneWholeText) {
  const auto path = folder_ / "a.txt";
  std::vector<std::thread> writers;
  for (char letter = 'a'; letter < 'e'; ++letter) {
    writers.emplace_back([&path, letter] {
      for (int i = 0; i < 50; ++i) write_text(path, std::string(10'000, letter));
    });
  }
  for (auto& writer : writers) writer.join();
  const std::string text = read_text(path);
  EXPECT_EQ(text, std::string(10'000, text.at(0)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(JsonFiles, MissingFilesAndFoldersAreNamed) {
  const std::string missing = (folder_ / "none.json").string();
  EXPECT_EQ(refusal([&] { read_json(missing); }), "4: " + missing + ": no such file");
  EXPECT_EQ(refusal([&] { read_json(folder_); }), "4: " + folder_.string() + ": no such file");
  EXPECT_EQ(refusal([&] { read_text(missing); }), "3: " + missing + ": cannot be read (No such file or directory)");
  EXPECT_EQ(refusal([&] { read_text(folder_); }), "3: " + folder_.string() + ": cannot be read (a folder)");
}

TEST_F(JsonFiles, AFileLargerThanTextIsIsNotReadToItsEnd) {
  const fs::path path = folder_ / "sparse.json";
  std::ofstream(path).put('{');
  fs::resize_file(path, uint64_t{1} << 40);
  EXPECT_EQ(refusal([&] { read_text(path, 1 << 20); }),
            "3: " + path.string() + ": expected at most 1048576 bytes, found more");
}

TEST_F(JsonFiles, WhatCannotBeWrittenIsOurErrorAndLeavesNothing) {
  const std::string nowhere = (folder_ / "no" / "a.txt").string();
  EXPECT_EQ(refusal([&] { write_text(nowhere, "x"); }),
            "3: " + nowhere + ": cannot be written (No such file or directory)");
  const fs::path taken = folder_ / "taken";
  fs::create_directory(taken);
  EXPECT_EQ(refusal([&] { write_text(taken, "x"); }), "3: " + taken.string() + ": cannot be written (Is a directory)");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace lockstep
