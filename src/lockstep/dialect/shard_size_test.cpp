#include <gtest/gtest.h>

#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

TEST(ShardSize, IsGigabytesForLlamaFactoryAndASizeForSwift) {
  const auto words = [](const std::vector<std::string>& given) {
    return join(translate("export", given, [](const std::string&) { return true; }).words, " ");
  };
  EXPECT_NE(
      words({"--model_name_or_path", "m", "--export_dir", "out", "--export_size", "2"}).find("--max_shard_size 2GB"),
      std::string::npos);
  EXPECT_NE(words({"--model", "m", "--max_shard_size", "500MB"}).find("--max_shard_size 500MB"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
