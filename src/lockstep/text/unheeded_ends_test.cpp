#include "lockstep/text/unheeded_ends.h"

#include <filesystem>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

/// Of a Llama tokenizer whose post_processor writes <s> in front, with these settings.
std::string words(const Json& settings) {
  const std::filesystem::path dir = std::filesystem::path(LOCKSTEP_FIXTURES) / "text" / "llama2";
  Json config = read_json(dir / "tokenizer_config.json");
  config.update(settings);
  const TokenizerFolder folder(dir, {{"tokenizer_config.json", config.dump()}});
  return unheeded_ends(folder, Tokenizer::load(folder));
}

TEST(UnheededEnds, ASettingThatThePostProcessorContradictsIsTold) {
  EXPECT_EQ(words(Json::object()), "");
  EXPECT_EQ(words({{"add_bos_token", nullptr}}), "");
  EXPECT_EQ(words({{"add_bos_token", false}, {"tokenizer_class", "PreTrainedTokenizerFast"}}), "");
  const std::string bos = words({{"add_bos_token", false}, {"tokenizer_class", "LlamaTokenizerFast"}});
  EXPECT_NE(bos.find("contradict each other: add_bos_token is false, and its post_processor writes <s>; the"),
            std::string::npos)
      << bos;
  const std::string both = words({{"add_bos_token", false}, {"add_eos_token", true}});
  EXPECT_NE(both.find("writes <s>; add_eos_token is true, and its post_processor does not write </s>; the"),
            std::string::npos)
      << both;
}

}  // namespace
}  // namespace lockstep
