#include "lockstep/model/hf_config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

HfConfig config(const char* text) { return {parse_json(text, "test"), "config.json"}; }

template <typename F>
std::string error_of(F&& call) {
  try {
    call();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    return e.what();
  }
  return "no error";
}

TEST(HfConfigTest, ReadsTypedValuesAndDefaults) {
  const HfConfig c =
      config(R"({"hidden_size": 64, "rope_theta": 1e6, "tie_word_embeddings": false, "hidden_act": "silu",
                                "eos_token_id": [2, 5], "pad": null, "float_int": 4096.0, "names": ["A"]})");
  EXPECT_EQ(c.integer("hidden_size"), 64);
  EXPECT_EQ(c.integer("float_int"), 4096);
  EXPECT_EQ(c.integer("absent", 7), 7);
  EXPECT_EQ(c.integer("pad", 9), 9);
  EXPECT_DOUBLE_EQ(c.number("rope_theta", 0), 1e6);
  EXPECT_FALSE(c.flag("tie_word_embeddings", true));
  EXPECT_EQ(c.text("hidden_act", ""), "silu");
  EXPECT_EQ(c.integers("eos_token_id"), (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(c.integers("hidden_size"), (std::vector<int64_t>{64}));
  EXPECT_TRUE(c.integers("absent").empty());
  EXPECT_EQ(c.texts("names"), (std::vector<std::string>{"A"}));
  EXPECT_FALSE(c.has("pad"));
  EXPECT_TRUE(c.has("names"));
}

TEST(HfConfigTest, SubObjectsCarryTheirPlace) {
  const HfConfig c = config(R"({"text_config": {"num_layers": "two"}})");
  EXPECT_EQ(c.at("text_config").where(), "config.json text_config");
  EXPECT_FALSE(c.at("vision_config").has("hidden_size"));
  EXPECT_EQ(error_of([&] { (void)c.at("text_config").integer("num_layers"); }),
            "config.json text_config: \"num_layers\": expected an integer, found \"two\" (string)");
}

TEST(HfConfigTest, AMissingKeyNamesTheNearest) {
  const HfConfig c = config(R"({"hidden_sizes": 64})");
  EXPECT_EQ(
      error_of([&] { (void)c.integer("hidden_size"); }),
      "config.json: \"hidden_size\": expected an integer, found no such key (1 keys there); hint: the nearest key "
      "is \"hidden_sizes\"");
}

TEST(HfConfigTest, WrongKindsSayWhatWasFound) {
  const HfConfig c = config(R"({"a": 1.5, "b": true, "c": [1, "x"], "d": 18446744073709551615})");
  EXPECT_EQ(error_of([&] { (void)c.integer("a"); }), "config.json: \"a\": expected an integer, found 1.5 (number)");
  EXPECT_EQ(error_of([&] { (void)c.integer("b"); }), "config.json: \"b\": expected an integer, found true (boolean)");
  EXPECT_EQ(error_of([&] { (void)c.number("b", 0); }), "config.json: \"b\": expected a number, found true (boolean)");
  EXPECT_EQ(error_of([&] { (void)c.integers("c"); }),
            "config.json: \"c\": expected a list of integers, found [1,\"x\"] (array)");
  EXPECT_EQ(error_of([&] { (void)c.at("a"); }), "config.json: \"a\": expected an object, found 1.5 (number)");
  EXPECT_NE(error_of([&] { (void)c.integer("d"); }).find("expected an integer"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
