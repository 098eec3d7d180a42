#include "lockstep/zoo/dropout_keys.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

TEST(DropoutKeys, AreThoseAboveZeroWithTheirPlace) {
  const Json json =
      Json::parse(R"({"attention_dropout": 0.0, "hidden_size": 8, "classifier_dropout": 0.1, "dropout": null,
      "llm_config": {"attention_dropout": 0.25, "quantization_config": {"dropout": false}},
      "vision_config": {"drop_path_rate": 0.1, "dropout": 0}})");
  EXPECT_EQ(dropout_keys(HfConfig(json, "config.json")),
            (std::vector<std::string>{"llm_config.attention_dropout 0.25", "vision_config.drop_path_rate 0.1"}));
}

}  // namespace
}  // namespace lockstep
