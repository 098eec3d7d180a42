#include "lockstep/state/checkpoint_manifest.h"

#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

std::filesystem::path file_of(const std::string& text) {
  const auto path = std::filesystem::path(testing::TempDir()) / "checkpoint_manifest" / "file";
  std::filesystem::create_directories(path.parent_path());
  write_text(path, text);
  return path;
}

TEST(CheckpointManifest, HashesAFileAsXxh64Does) {
  EXPECT_EQ(describe_file(file_of("abc")).xxh64, "44bc2cf5ad770999");  // the value that xxhsum prints
  EXPECT_EQ(describe_file(file_of("")).xxh64, "ef46db3751d8e999");
}

TEST(CheckpointManifest, HashesAFileOfSeveralStretchesAsOne) {
  std::string text((size_t{17} << 20) + 13, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 2654435761U >> 13);
  const ManifestEntry entry = describe_file(file_of(text));
  EXPECT_EQ(entry.bytes, static_cast<int64_t>(text.size()));
  EXPECT_EQ(entry.xxh64, fmt::format("{:016x}", XXH64(text.data(), text.size(), 0)));
}

TEST(CheckpointManifest, AByteThatChangedIsFoundAtTheSameSize) {
  const std::filesystem::path dir = file_of("abc").parent_path();
  std::filesystem::remove(dir / kManifestName);
  seal_folder(dir, 1, describe_folder(dir));
  EXPECT_NO_THROW(verify_folder(dir));
  file_of("abd");
  try {
    verify_folder(dir);
    ADD_FAILURE() << "a changed file is taken for whole";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("expected xxh64 44bc2cf5ad770999"), std::string::npos) << error.what();
  }
  std::filesystem::remove_all(dir);
}

TEST(CheckpointManifest, ASizeThatNoFileHasIsNamed) {
  const std::filesystem::path dir = file_of("abc").parent_path();
  write_text(
      dir / kManifestName,
      R"({"format": "lockstep checkpoint 1", "files": {"file": {"bytes": 9.7e130, "xxh64": "44bc2cf5ad770999"}}})");
  try {
    verify_folder(dir);
    ADD_FAILURE() << "a size of 131 digits is taken";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    EXPECT_NE(error.message().find("file: expected a number of bytes, found 9.7e+130"), std::string::npos)
        << error.message();
  }
  std::filesystem::remove_all(dir);
}

TEST(CheckpointManifest, AModelCardMayBeEditedOrRemoved) {
  const std::filesystem::path dir = file_of("abc").parent_path();
  std::filesystem::remove(dir / kManifestName);
  write_text(dir / "README.md", "---\nlicense: mit\n---\n");
  seal_folder(dir, 1, describe_folder(dir));
  write_text(dir / "README.md", "Trained on the rows of May.\n");
  EXPECT_NO_THROW(verify_folder(dir));
  std::filesystem::remove(dir / "README.md");
  EXPECT_NO_THROW(verify_folder(dir));
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace lockstep
