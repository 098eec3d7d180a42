#include <limits>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/state/sharded_adamw.h"  // AdamWOptions
#include "lockstep/tensor/make.h"
#include "lockstep/verify/model.h"
#include "lockstep/verify/parts.h"
#include "lockstep/verify/report.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

const fs::path kOracles = fs::path(LOCKSTEP_FIXTURES) / "oracle";

VerifyReport verified(const fs::path& folder, Dtype compute = Dtype::kF32) {
  VerifyReport report;
  verify_any(folder, compute, report);
  return report;
}

class VerifyFolderTest : public testing::TestWithParam<const char*> {};

TEST_P(VerifyFolderTest, RecordedOraclesHold) {
  const VerifyReport report = verified(kOracles / GetParam());
  EXPECT_TRUE(report.holds()) << report.table() << report.summary();
  EXPECT_GT(report.count(VerifyVerdict::kHolds), 4) << report.table();
}

INSTANTIATE_TEST_SUITE_P(Fixtures, VerifyFolderTest,
                         testing::Values("seed1/qwen2", "seed1/llava", "seed1/train_qwen2", "seed1/train_llava",
                                         "odd/qwen2", "odd/llama", "odd/llava", "odd/qwen2_5_vl", "odd/internvl",
                                         "odd/minicpm_v_2_6", "odd/minicpm_o_2_6", "odd/omnilmm", "odd/qwen2_5_omni",
                                         "seed1/audio_preprocess"));

TEST(VerifyTest, Bfloat16HoldsWithItsOwnTolerances) {
  const VerifyReport report = verified(kOracles / "seed1" / "llava", Dtype::kBF16);
  EXPECT_TRUE(report.holds()) << report.table() << report.summary();
}

TEST(VerifyTest, Float16HoldsWithinAnEighthOfThem) {
  const VerifyReport report = verified(kOracles / "seed1" / "llava", Dtype::kF16);
  EXPECT_TRUE(report.holds()) << report.table() << report.summary();
}

TEST(VerifyTest, TensorsThatNoBlockReadsHaveZeroGradients) {
  const fs::path folder = kOracles / "seed1" / "llava";
  VerifyModel model(folder / "checkpoint", {.zero = {0}, .compute = Dtype::kF32}, {});
  model.backward(read_reference(folder).inputs.at("batch"), 1.0);
  const Named gradients = model.gradients();
  const auto at = gradients.find("vision_tower.vision_model.post_layernorm.weight");
  ASSERT_NE(at, gradients.end());
  EXPECT_TRUE(at->second.eq(0).all().item<bool>());
  EXPECT_FALSE(gradients.at("language_model.model.norm.weight").eq(0).all().item<bool>());
}

/// verify is only worth something if it fails.
class VerifyDamageTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) / "verify_damage";
    fs::remove_all(dir_);
    fs::copy(kOracles / "seed1" / "qwen2", dir_, fs::copy_options::recursive);
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path dir_;
};

TEST_F(VerifyDamageTest, AnotherNormEpsilonIsFound) {
  Json config = read_json(dir_ / "checkpoint" / "config.json");
  config["rms_norm_eps"] = 1e-2;
  write_json(dir_ / "checkpoint" / "config.json", config);
  const VerifyReport report = verified(dir_);
  EXPECT_FALSE(report.holds());
  EXPECT_GT(report.count(VerifyVerdict::kFails), 3) << report.table();
}

/// Half a step of AdamW on the first key biases, which comparing them within a step would pass: positions turn it, so the
/// model says something else.
TEST_F(VerifyDamageTest, AKeyBiasIsHeldToWhatItChanges) {
  fs::remove_all(dir_);
  fs::copy(kOracles / "seed1" / "train_qwen2", dir_, fs::copy_options::recursive);
  ASSERT_TRUE(verified(dir_).holds());
  Json meta = read_json(dir_ / "reference.json");
  for (const auto& [name, sum] : meta["final_checksums"]["full_token_mean"].items()) {
    if (!name.ends_with("k_proj.bias")) continue;
    for (auto& value : meta["final_checksums"]["full_token_mean"][name]["first8"]) value = value.get<double>() + 1e-3;
  }
  write_json(dir_ / "reference.json", meta);
  const VerifyReport report = verified(dir_);
  EXPECT_EQ(report.count(VerifyVerdict::kFails), 1) << report.table();
  EXPECT_NE(report.table().find("own key biases"), std::string::npos);
}

TEST_F(VerifyDamageTest, AMissingCheckpointIsARowThatFails) {
  fs::remove(dir_ / "checkpoint" / "model.safetensors");
  const VerifyReport report = verified(dir_);
  EXPECT_FALSE(report.holds());
  EXPECT_NE(report.table().find("expected model.safetensors"), std::string::npos) << report.table();
}

TEST_F(VerifyDamageTest, AFamilyThatIsNotBuiltIsListedAndNeverCounted) {
  Json config = read_json(dir_ / "checkpoint" / "config.json");
  config["architectures"] = {"SomeoneElsesModel"};
  write_json(dir_ / "checkpoint" / "config.json", config);
  const VerifyReport report = verified(dir_);
  EXPECT_FALSE(report.holds()) << "nothing was compared";
  EXPECT_EQ(report.count(VerifyVerdict::kFails), 0);
  EXPECT_GT(report.count(VerifyVerdict::kNotBuilt), 0);
}

TEST(VerifyReportTest, ShapesNanAndToleranceDecide) {
  VerifyReport report;
  const Tensor ones = full({2, 3}, 1.0, Dtype::kF32);
  report.compare("c", "same", ones, ones, {.max = 0});
  report.compare("c", "near", ones, ones.add(1e-5), {.max = 1e-4});
  EXPECT_TRUE(report.holds());
  report.compare("c", "far", ones, ones.add(1e-3), {.max = 1e-4});
  report.compare("c", "shape", ones, full({3, 2}, 1.0, Dtype::kF32), {.max = 1});
  report.compare("c", "nan", ones, full({2, 3}, std::numeric_limits<double>::quiet_NaN(), Dtype::kF32), {.max = 1e9});
  report.compare("c", "mean", ones, ones.add(0.5), {.max = 1, .mean = 0.1});
  EXPECT_EQ(report.count(VerifyVerdict::kFails), 4) << report.table();
  EXPECT_EQ(report.count(VerifyVerdict::kHolds), 2);
  EXPECT_EQ(report.json()["rows"].size(), 6U);
  EXPECT_TRUE(report.json()["rows"][4]["max_abs_difference"].is_null());
}

TEST(VerifyReportTest, OnlyPositionsUnderTheMaskCount) {
  VerifyReport report;
  const Tensor expected = zeros({1, 2, 2}, Dtype::kF32), found = zeros({1, 2, 2}, Dtype::kF32);
  found.select(1, 1).fill_(9.0);
  const Tensor mask = zeros({1, 2}, Dtype::kI64);
  mask.select(1, 0).fill_(1);
  report.compare("c", "masked", expected, found, {.max = 0}, mask);
  EXPECT_TRUE(report.holds()) << report.table();
  report.compare("c", "whole", expected, found, {.max = 0});
  EXPECT_FALSE(report.holds());
}

TEST(VerifyReportTest, NothingComparedDoesNotHold) {
  VerifyReport report;
  report.not_built("c", "t", "");
  EXPECT_FALSE(report.holds());
}

TEST(VerifyTest, AFolderThatIsNotThereIsADataError) {
  VerifyReport report;
  EXPECT_THROW(verify_any("/no/such/folder", Dtype::kF32, report), UserError);
}

}  // namespace
}  // namespace lockstep
