#include "lockstep/zoo/fresh_checkpoint.h"

#include <filesystem>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/doctor/inspect.h"
#include "lockstep/model/weights.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class InitTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("init_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  InitReport make(const std::string& family, const std::string& name, Dtype dtype = Dtype::kBF16) const {
    return init_checkpoint({.family = family, .size = "tiny", .output_dir = root_ / name, .seed = 7, .dtype = dtype});
  }
  fs::path root_;
};

TEST_F(InitTest, EveryFamilyGivesAFolderInWhichInspectFindsEverything) {
  for (const std::string family : {"qwen2", "llama", "mistral", "qwen3", "llava", "qwen2_5_vl", "internvl",
                                   "minicpm_v_2_6", "minicpm_o_2_6", "omnilmm", "qwen2_5_omni"}) {
    const InitReport made = make(family, family);
    const Json report = inspect_checkpoint(root_ / family);
    EXPECT_TRUE(report["problems"].empty()) << family << ": " << report["problems"].dump();
    EXPECT_EQ(report["family"], family);
    EXPECT_EQ(report["dialect"], "released");
    EXPECT_EQ(report["parameters"]["total"], made.parameters);
    EXPECT_EQ(report["weight_bytes"], 2 * made.parameters);
    EXPECT_TRUE(report["chat_template"].get<bool>());
    EXPECT_TRUE(report["processor"].get<bool>());
    EXPECT_NE(inspect_text(report).find("every part was read and fits"), std::string::npos);
  }
}

TEST_F(InitTest, TheSameSeedGivesTheSameBytes) {
  make("llava", "a");
  make("llava", "b");
  for (const auto& entry : fs::directory_iterator(root_ / "a")) {
    const fs::path other = root_ / "b" / entry.path().filename();
    EXPECT_EQ(read_text(entry.path()), read_text(other)) << entry.path();
  }
}

TEST_F(InitTest, NormsAreOneBiasesZeroAndMatricesNormal) {
  make("qwen2", "m", Dtype::kF32);
  const Weights weights = Weights::open(root_ / "m");
  EXPECT_TRUE(weights.read("model.norm.weight").eq(1).all().item<bool>());
  EXPECT_TRUE(weights.read("model.layers.0.self_attn.q_proj.bias").eq(0).all().item<bool>());
  const Tensor matrix = weights.read("model.layers.0.mlp.down_proj.weight");
  EXPECT_NEAR(matrix.std().item<double>(), 0.05, 0.001);
  EXPECT_NEAR(matrix.mean().item<double>(), 0.0, 0.002);
}

TEST_F(InitTest, TokenIdsOfTheConfigAreThoseOfTheTokenizer) {
  make("llava", "m");
  const Json config = read_json(root_ / "m" / "config.json"), tokenizer = read_json(root_ / "m" / "tokenizer.json");
  std::map<std::string, int64_t> ids;
  for (const auto& token : tokenizer["added_tokens"])
    ids[token["content"].get<std::string>()] = token["id"].get<int64_t>();
  EXPECT_EQ(config["image_token_index"], ids.at("<image>"));
  EXPECT_EQ(config["pad_token_id"], ids.at("<pad>"));
  EXPECT_EQ(read_json(root_ / "m" / "generation_config.json")["eos_token_id"], ids.at("</s>"));
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
}

TEST_F(InitTest, FilesInTheWayUnknownFamiliesAndSizesAreRefusedAndLeaveNothing) {
  fs::create_directories(root_ / "full");
  write_text(root_ / "full" / "mine.txt", "x");
  EXPECT_THROW(make("llava", "full"), UserError);
  EXPECT_EQ(read_text(root_ / "full" / "mine.txt"), "x");
  EXPECT_THROW(make("lava", "new"), UserError);
  EXPECT_THROW(init_checkpoint({.family = "llava", .size = "huge", .output_dir = root_ / "new"}), UserError);
  EXPECT_THROW(init_checkpoint({.family = "llava", .output_dir = root_ / "new", .vocab_size = 100}), UserError);
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 1) << "only full/ stands there";
}

TEST_F(InitTest, InspectNamesEveryProblemAtOnce) {
  make("qwen2", "m");
  Json config = read_json(root_ / "m" / "config.json");
  config["intermediate_size"] = config["intermediate_size"].get<int64_t>() + 1;
  config["quantization_config"] = {{"quant_method", "gptq"}};
  write_json(root_ / "m" / "config.json", config);
  write_text(root_ / "m" / "tokenizer.json", "{broken");
  const Json report = inspect_checkpoint(root_ / "m");
  const std::string problems = report["problems"].dump();
  EXPECT_GE(report["problems"].size(), 3U);
  EXPECT_NE(problems.find("config.json intermediate_size"), std::string::npos) << problems;
  EXPECT_NE(problems.find("gptq"), std::string::npos) << problems;
  EXPECT_NE(problems.find("tokenizer.json"), std::string::npos) << problems;
}

}  // namespace
}  // namespace lockstep
