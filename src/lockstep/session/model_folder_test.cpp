#include "lockstep/session/model_folder.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/model/safetensors_writer.h"
#include "lockstep/tensor/make.h"

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

TEST(ModelFolder, TheDtypeIsTheTextsOrThatOfTheFilesWhereTheRootHasNone) {
  const fs::path dir = fs::path(testing::TempDir()) / "model_folder_dtype";
  fs::create_directories(dir);
  const fs::path omni = fs::path(LOCKSTEP_FIXTURES) / "oracle" / "odd" / "qwen2_5_omni" / "checkpoint";
  Json config = read_json(omni / "config.json");
  const auto dtype_of = [&](const Json& json) {
    write_json(dir / "config.json", json);
    return ModelFolder(ModelPlace(dir)).dtype_of_config();
  };
  for (Json* part : {&config, &config["thinker_config"], &config["thinker_config"]["text_config"]}) {
    part->erase("dtype");
    part->erase("torch_dtype");
  }
  EXPECT_EQ(dtype_of(config), Dtype::kF32) << "nothing is stored";
  config["thinker_config"]["text_config"]["dtype"] = "float16";
  EXPECT_EQ(dtype_of(config), Dtype::kF16);
  config["thinker_config"]["torch_dtype"] = "bfloat16";
  EXPECT_EQ(dtype_of(config), Dtype::kBF16);
  config["torch_dtype"] = "float32";
  EXPECT_EQ(dtype_of(config), Dtype::kF32);
  Json text = read_json(kModel / "config.json");
  text.erase("torch_dtype");
  SafetensorsWriter files(dir, {{"model.norm.weight", Dtype::kBF16, {2}}});
  files.write("model.norm.weight", zeros({2}, Dtype::kBF16));
  files.finish();
  EXPECT_EQ(dtype_of(text), Dtype::kBF16);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace lockstep
