#include "lockstep/state/side_files.h"

#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class SideFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           ("side_files_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  void put(const std::string& name, const std::string& bytes) {
    fs::create_directories((dir_ / "from" / name).parent_path());
    std::ofstream(dir_ / "from" / name, std::ios::binary) << bytes;
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& file : read_side_files(dir_ / "from")) out.push_back(file.name);
    return out;
  }
  fs::path dir_;
};

TEST_F(SideFilesTest, CodeAssetsAndSubfoldersTravelAndWeightsRunsAndHiddenOnesDoNot) {
  for (const char* name : {"config.json", "modeling_own.py", "spk_dict.pt", "assets/voice.wav", "examples/a/b.txt",
                           "model.safetensors", "pytorch_model.bin", "optimizer.pt", ".git/config", "logging.jsonl",
                           "checkpoint-4/config.json", "checkpoint-4/notes.txt", "model.safetensors.index.json"}) {
    put(name, "{}");
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"assets/voice.wav", "config.json", "examples/a/b.txt", "modeling_own.py",
                                               "spk_dict.pt"}));
}

TEST_F(SideFilesTest, WhatOthersTrainersGoOnFromDoesNotTravelNorAnAdaptersConfig) {
  for (const char* name :
       {"config.json", "optimizer_notes.md", "assets/latest.txt", "global_step20/mp_rank_00_model_states.pt",
        "global_step20/readme.txt", "pytorch_model_fsdp_0/__0_0.distcp", "pytorch_model_fsdp_0/notes",
        "optimizer_0/notes", "a.distcp", "zero_pp_rank_0_mp_rank_00_optim_states.pt", "latest", "zero_to_fp32.py",
        "scaler.pt", "rng_state_0.pth", "random_states_0.pkl", "scheduler.pt", "adapter_config.json"}) {
    put(name, "{}");
  }
  EXPECT_EQ(names(), (std::vector<std::string>{"assets/latest.txt", "config.json", "optimizer_notes.md"}));
}

TEST_F(SideFilesTest, LargeFilesAreNotHeldAndSurviveTheirFoldersEnd) {
  put("config.json", "{\"torch_dtype\": \"float32\"}");
  put("assets/voice.pt", "head");
  fs::resize_file(dir_ / "from/assets/voice.pt", 40U << 20U);
  const SideFiles files = read_side_files(dir_ / "from");
  EXPECT_TRUE(std::holds_alternative<MappedFile>(files.at(0).bytes));
  fs::remove_all(dir_ / "from");
  write_side_files(files, Dtype::kBF16, dir_ / "to");
  EXPECT_EQ(fs::file_size(dir_ / "to/assets/voice.pt"), 40U << 20U);
  EXPECT_EQ(read_text(dir_ / "to/assets/voice.pt").substr(0, 5), std::string("head\0", 5));
  EXPECT_EQ(read_json(dir_ / "to/config.json")["torch_dtype"], "bfloat16");
}

TEST_F(SideFilesTest, MoreThanAModelHasIsToldWithItsPlace) {
  put("config.json", "{}");
  put("assets/voice.pt", "voice");
  put("data/a.mp4", "film");
  put("data/b.mp4", "film");
  EXPECT_EQ(large_side_files(read_side_files(dir_ / "from")), "");
  fs::resize_file(dir_ / "from/data/a.mp4", 800U << 20U);
  fs::resize_file(dir_ / "from/data/b.mp4", 736U << 20U);
  const SideFiles files = read_side_files(dir_ / "from");
  EXPECT_EQ(side_file_bytes(files), (int64_t{1536} << 20) + 7);
  EXPECT_EQ(
      large_side_files(files),
      "1.50 GiB in 4 files beside the weights, 1.50 GiB of them data/: they travel with every checkpoint and export: "
      "move what is not the model's to another folder");
}

TEST_F(SideFilesTest, ManySmallFilesAreHeldUpToALimitTheModelsOwnFirst) {
  put("config.json", "{}");
  constexpr size_t kFiles = 40;
  for (size_t i = 0; i < kFiles; ++i) {
    const std::string name = fmt::format("data/{}.jpg", i);
    put(name, "picture");
    fs::resize_file(dir_ / "from" / name, 8U << 20U);
  }
  const SideFiles files = read_side_files(dir_ / "from");
  ASSERT_EQ(files.size(), kFiles + 1);
  EXPECT_TRUE(std::holds_alternative<std::string>(files.front().bytes));
  size_t held = 0;
  for (const auto& file : files) held += std::holds_alternative<std::string>(file.bytes) ? 1U : 0U;
  EXPECT_EQ(held, 1U + 31U);  // 256 MiB, but for config.json's two bytes
}

TEST_F(SideFilesTest, ALinkToAFolderIsNotFollowed) {
  put("sub/a.txt", "a");
  fs::create_directory_symlink(dir_ / "from", dir_ / "from/sub/again");
  EXPECT_EQ(names(), std::vector<std::string>{"sub/a.txt"});
}

}  // namespace
}  // namespace lockstep
