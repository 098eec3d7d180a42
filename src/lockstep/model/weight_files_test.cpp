#include "lockstep/model/weight_files.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"

namespace lockstep {
namespace {

class WeightFilesTest : public InTestFolder {
 protected:
  std::string error() const {
    try {
      (void)find_weight_files(folder_);
    } catch (const UserError& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kCheckpoint);
      return failure.what();
    }
    return "none";
  }
  void expect_told(const std::vector<std::string>& words) const {
    for (const auto& word : words) EXPECT_NE(error().find(word), std::string::npos) << error();
  }
};

TEST_F(WeightFilesTest, WhatEachRankKeptAloneIsNamedWithWhatGathersIt) {
  std::filesystem::create_directories(folder_ / "global_step100");
  expect_told({"found global_step100/ of DeepSpeed", "zero_to_fp32.py " + folder_.string() + " OUT"});
  std::filesystem::remove_all(folder_ / "global_step100");
  std::filesystem::create_directories(folder_ / "pytorch_model_fsdp_0");
  expect_told({"found pytorch_model_fsdp_0 of FSDP",
               "accelerate merge-weights " + (folder_ / "pytorch_model_fsdp_0").string() + " OUT"});
  std::filesystem::rename(folder_ / "pytorch_model_fsdp_0", folder_ / "__0_0.distcp");
  expect_told({"found __0_0.distcp of FSDP", "accelerate merge-weights " + folder_.string() + " OUT"});
}

}  // namespace
}  // namespace lockstep
