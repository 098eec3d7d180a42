#include "lockstep/session/rehearsed_rows.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "lockstep/data/loader.h"

namespace lockstep {
namespace {

RehearsedRows typical(const char* config, int64_t tokens) {
  return RehearsedRows::typical(
      ModelFolder(std::filesystem::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs" / config), tokens);
}

TEST(RehearsedRows, RowsThatWaitHoldTheValuesOfTheirMedia) {
  const int64_t ahead = LoaderOptions{}.prefetch;
  EXPECT_EQ(typical("Qwen2.5-7B", 1000).waiting_bytes(3), ahead * 3 * 1000 * 8) << "ids and labels";
  constexpr int64_t kPicture = int64_t{3} * 336 * 336 * 4;
  const int64_t waiting = typical("LLaVA-1.5-7B", 1000).waiting_bytes(2);
  EXPECT_GE(waiting, ahead * 2 * kPicture);
  EXPECT_LE(waiting, ahead * 2 * (kPicture + 1000 * 16));
}

}  // namespace
}  // namespace lockstep
