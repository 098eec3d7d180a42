#include "lockstep/state/adapter_folder.h"

#include <fstream>

#include <gtest/gtest.h>

namespace lockstep {
namespace {
namespace fs = std::filesystem;

TEST(AdapterFolder, AModelInWhichTheConfigOfOneWasLeftIsNone) {
  const fs::path dir = fs::path(testing::TempDir()) / "adapter_folder_of_a_model";
  fs::remove_all(dir);
  fs::create_directories(dir);
  const auto put = [&](const char* name) { std::ofstream(dir / name) << "{}"; };
  put("config.json");
  put("model.safetensors");
  EXPECT_FALSE(is_adapter_folder(dir));
  put("adapter_config.json");
  EXPECT_FALSE(is_adapter_folder(dir));
  put("adapter_model.bin");  // LLaVA keeps its base's config.json beside it
  EXPECT_TRUE(is_adapter_folder(dir));
  fs::remove_all(dir);
}

}  // namespace
}  // namespace lockstep
