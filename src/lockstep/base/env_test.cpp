#include "lockstep/base/env.h"

#include <cstdlib>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Values = std::map<std::string, std::string>;

TEST(Env, ReadsTextsIntegersAndFlags) {
  const Env env(Values{{"HOST", "node1"}, {"RANK", "3"}, {"OFFSET", "-7"}, {"ON", "Yes"}, {"OFF", "0"}, {"EMPTY", ""}});
  EXPECT_EQ(env.text("HOST"), "node1");
  EXPECT_EQ(env.integer("RANK"), 3);
  EXPECT_EQ(env.integer("OFFSET"), -7);
  EXPECT_EQ(env.flag("ON"), true);
  EXPECT_EQ(env.flag("OFF"), false);
}

TEST(Env, UnsetAndEmptyAreTheSame) {
  const Env env(Values{{"EMPTY", ""}});
  for (const char* name : {"EMPTY", "MISSING"}) {
    EXPECT_FALSE(env.has(name));
    EXPECT_EQ(env.text(name), std::nullopt);
    EXPECT_EQ(env.integer(name), std::nullopt);
    EXPECT_EQ(env.flag(name), std::nullopt);
  }
}

TEST(Env, WhatIsNotANumberIsNamed) {
  for (const char* text : {"two", "2 ", "2.5", "0x10", "99999999999999999999"}) {
    const Env env(Values{{"RANK", text}});
    try {
      env.integer("RANK");
      FAIL() << text;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      EXPECT_EQ(error.message(), "environment variable RANK: expected an integer, found \"" + std::string(text) + "\"");
    }
  }
}

TEST(Env, WhatIsNeitherOnNorOffIsRefused) {
  const Env env(Values{{"FLAG", "maybe"}});
  EXPECT_THROW(env.flag("FLAG"), UserError);
}

TEST(Env, ProcessSeesValuesThatContainAnEqualsSign) {
  ASSERT_EQ(setenv("LOCKSTEP_ENV_TEST", "a=b=c", 1), 0);
  EXPECT_EQ(Env::process().text("LOCKSTEP_ENV_TEST"), "a=b=c");
  unsetenv("LOCKSTEP_ENV_TEST");
  EXPECT_FALSE(Env::process().has("LOCKSTEP_ENV_TEST"));
}

}  // namespace
}  // namespace lockstep
