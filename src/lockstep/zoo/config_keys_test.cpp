#include "lockstep/zoo/config_keys.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

std::string told(const Json& config, const char* key) {
  return wrong_key(HfConfig(config, "config.json"), key, "a square").what();
}

TEST(ConfigKeys, TellWhatStandsThereOrNone) {
  EXPECT_EQ(told({{"queries", 5}}, "queries"), "config.json: queries: expected a square, found 5");
  EXPECT_EQ(told({{"queries", "\x1b[2J"}}, "queries"), "config.json: queries: expected a square, found \"\\u001b[2J\"");
  EXPECT_EQ(told(Json::object(), "queries"), "config.json: queries: expected a square, found none");
}

TEST(ConfigKeys, TellOfAHugeValueItsEndsAlone) {
  EXPECT_LT(told({{"queries", std::vector<int>(100000, 7)}}, "queries").size(), 400U);
}

TEST(ConfigKeys, AnActivationIsOneOfThoseThatAreBuilt) {
  const HfConfig config(Json{{"act", "gelu"}, {"other", "softsign"}, {"nothing", nullptr}}, "config.json");
  EXPECT_EQ(read_activation(config, "act", "silu"), "gelu");
  EXPECT_EQ(read_activation(config, "left_out", "silu"), "silu");
  EXPECT_EQ(read_activation(config, "nothing", "silu"), "silu");
  try {
    (void)read_activation(config, "other", "silu");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(e.what()).find("other: expected one of"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("found \"softsign\""), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
