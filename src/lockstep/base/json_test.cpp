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
}

TEST(ParseJson, ANumberThatNoDoubleHoldsIsOurError) {
  const std::string text = refusal([] { parse_json("[1e999]", "f"); });
  EXPECT_EQ(text.substr(0, 21), "4: f: not valid JSON:") << text;
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

TEST_F(JsonFiles, WhatCannotBeWrittenIsOurErrorAndLeavesNothing) {
  const std::string nowhere = (folder_ / "no" / "a.txt").string();
  EXPECT_EQ(refusal([&] { write_text(nowhere, "x"); }),
            "4: " + nowhere + ": cannot be written (No such file or directory)");
  const fs::path taken = folder_ / "taken";
  fs::create_directory(taken);
  EXPECT_EQ(refusal([&] { write_text(taken, "x"); }), "4: " + taken.string() + ": cannot be written (Is a directory)");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace lockstep
