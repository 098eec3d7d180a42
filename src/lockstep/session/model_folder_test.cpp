#include "lockstep/session/model_folder.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace lockstep {
namespace {
namespace fs = std::filesystem;

const fs::path kModel = fs::path(LOCKSTEP_FIXTURES) / "oracle" / "seed1" / "qwen2" / "checkpoint";

TEST(ModelFolder, AnAdapterThatWasGivenTokensHasTheTokenizerAndNothingThatMakesItsFolderAModel) {
  EXPECT_TRUE(ModelFolder(ModelPlace(kModel)).adapter_side_files().empty());
  const SideFiles files = ModelFolder(ModelPlace(kModel, {}, {}, {"<box>"})).adapter_side_files();
  const auto find = [&](const std::string& name) {
    return std::ranges::find(files, name, [](const SideFile& file) { return file.name; });
  };
  const auto tokenizer = find("tokenizer.json");
  ASSERT_NE(tokenizer, files.end());
  EXPECT_NE(std::get<std::string>(tokenizer->bytes).find("<box>"), std::string::npos);
  EXPECT_NE(find("tokenizer_config.json"), files.end());
  EXPECT_EQ(find("config.json"), files.end());
  EXPECT_EQ(find("generation_config.json"), files.end());
}

}  // namespace
}  // namespace lockstep
