#include "lockstep/base/python_literal.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

/// As JSON; of what is none, the byte and why.
std::string read(const std::string& text) {
  Json out;
  JsonFault fault;
  if (try_parse_python(text, out, fault)) return out.dump();
  return std::to_string(fault.byte) + ": " + fault.why;
}

TEST(PythonLiteral, IsReadAsPythonReadsIt) {
  EXPECT_EQ(read("[('a', \"it's\"), None, True, False, -1, 2.5, 1e3, 1_000,]"),
            R"([["a","it's"],null,true,false,-1,2.5,1000.0,1000])");
  EXPECT_EQ(read("{'a': {'b': [1]}, 0: '20GB'}"), R"({"a":{"b":[1]},"0":"20GB"})");
  EXPECT_EQ(read("(1)"), "1");
  EXPECT_EQ(read("(1,)"), "[1]");
  EXPECT_EQ(read("()"), "[]");
  EXPECT_EQ(read(R"('a\n\t\\\'\x41\u00e9\U0001F600\101' "b")"), "\"a\\n\\t\\\\'A\u00e9\U0001F600Ab\"");
  EXPECT_EQ(read("'''two\nlines'''"), R"("two\nlines")");
  EXPECT_EQ(read(" [ ] "), "[]");
  EXPECT_EQ(read("{'a': 1, 'b': 2, 'a': 3}"), R"({"a":3,"b":2})");
}

// Each was looked for among all others: half a minute.
TEST(PythonLiteral, AKeyMayStandThereAsOftenAsItLikes) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "'key " + std::to_string(i) + "': 0, ";
  for (int i = 0; i < 100'000; ++i) text += "'key 99999': " + std::to_string(i) + ", ";
  EXPECT_TRUE(read(text + "}").ends_with(R"("key 99999":99999})"));
}

TEST(PythonLiteral, WhatIsNoneIsToldWithItsPlace) {
  EXPECT_EQ(read("[1, 2"), "5: expected ',' or ']'");
  EXPECT_EQ(read("{'a' 1}"), "5: expected ':'");
  EXPECT_EQ(read("'a"), "2: expected the end of a text");
  EXPECT_EQ(read("nan"), "0: expected True, False or None");
  EXPECT_EQ(read("__import__('os')"), "0: expected True, False or None");
  EXPECT_EQ(read("1 2"), "2: expected the end behind the value");
  EXPECT_EQ(read(""), "0: expected a list, a dict, a text, a number, True, False or None");
  EXPECT_EQ(read("1x"), "0: expected a number");
  EXPECT_EQ(read("'\\x4'"), "2: expected 2 hexadecimal digits of a character");
  EXPECT_EQ(read("{'a': 'b\xff'}"), "0: expected UTF-8, found bytes that are none");
  EXPECT_TRUE(read(std::string(100000, '[')).find("deep") != std::string::npos);
}

TEST(PythonLiteral, JsonComesFirst) {
  Json out;
  JsonFault fault;
  ASSERT_TRUE(try_parse_literal("[true, null]", out, fault));
  EXPECT_EQ(out.dump(), "[true,null]");
  ASSERT_TRUE(try_parse_literal("[True, None]", out, fault));
  EXPECT_EQ(out.dump(), "[true,null]");
  EXPECT_FALSE(try_parse_literal("{'a': [1, 2, }", out, fault));
  EXPECT_EQ(fault.byte, 13U);
}

}  // namespace
}  // namespace lockstep
