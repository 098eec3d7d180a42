#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

// Beside adapters the tables that hold them are trained, unless something else is asked for.
TEST(NewTokens, OfLlamaFactoryLearn) {
  const auto words = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--stage", "sft", "--model_name_or_path", "m", "--add_special_tokens", "<a>,<b>"});
    return join(translate("sft", more, [](const std::string&) { return true; }).words, " ");
  };
  EXPECT_NE(words({}).find("--modules_to_save embed_tokens lm_head"), std::string::npos) << words({});
  EXPECT_NE(words({"--resize_vocab", "true"}).find("--modules_to_save embed_tokens lm_head"), std::string::npos);
  EXPECT_EQ(words({"--finetuning_type", "full"}).find("--modules_to_save"), std::string::npos);
  EXPECT_NE(words({"--additional_target", "q_proj"}).find("--modules_to_save q_proj"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
