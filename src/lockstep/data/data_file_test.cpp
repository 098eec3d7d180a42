// Tables against the JSON lines of the same rows (tests/fixtures/tables, written by pyarrow), in every order.
#include "lockstep/data/data_file.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/random.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path table(const std::string& name) { return fs::path(LOCKSTEP_FIXTURES) / "tables" / name; }

bool has_library() {
  try {
    const DataFile file(table("plain.parquet").string());
    return true;
  } catch (const UserError& error) {
    return std::string(error.what()).find("is neither beside the program") == std::string::npos;
  }
}

std::string bytes_of(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

/// What reading all rows of these bytes throws; empty: nothing.
std::string read_all(const std::string& bytes) {
  std::string name = (fs::temp_directory_path() / "lockstep_table_XXXXXX").string();
  ::close(::mkstemp(name.data()));
  std::ofstream(name, std::ios::binary) << bytes;
  std::string what;
  try {
    const DataFile file(name);
    for (size_t i = 0; i < std::min<size_t>(file.size(), 1000); ++i) file.row(i);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    what = error.what();
  }
  fs::remove(name);
  return what;
}

class Tables : public testing::TestWithParam<const char*> {};

TEST_P(Tables, HoldTheRowsOfTheJsonLines) {
  if (!has_library()) GTEST_SKIP() << "liblockstep_arrow.so is not built";
  const DataFile expected(table("rows.jsonl").string()), file(table(GetParam()).string());
  ASSERT_EQ(file.size(), expected.size());
  for (size_t i = 0; i < file.size(); ++i) EXPECT_EQ(file.row(i), expected.row(i)) << i;
  for (size_t i = 0; i < file.size(); ++i) {
    const size_t any = i * 37 % file.size();
    EXPECT_EQ(file.row(any), expected.row(any)) << any;
  }
  EXPECT_TRUE(file.where(3).ends_with(fmt::format("{}[3]", GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Tables,
                         testing::Values("plain.parquet", "snappy.parquet", "groups.parquet", "pages.parquet",
                                         "pages2.parquet", "brotli.parquet", "file.arrow", "stream.arrow",
                                         "lz4.arrow"));

TEST(TableFiles, CutShortTheyAreRefused) {
  if (!has_library()) GTEST_SKIP() << "liblockstep_arrow.so is not built";
  const std::string parquet = bytes_of(table("groups.parquet")), arrow = bytes_of(table("file.arrow"));
  for (const size_t part : {1, 3, 10}) {
    EXPECT_NE(read_all(parquet.substr(0, parquet.size() * part / 11)).find("expected a Parquet or Arrow file"),
              std::string::npos);
    EXPECT_NE(read_all(arrow.substr(0, arrow.size() * part / 11)).find("expected a Parquet or Arrow file"),
              std::string::npos);
  }
  EXPECT_NE(read_all("PAR1").find("expected a Parquet or Arrow file"), std::string::npos);
}

TEST(TableFiles, ACompressionThatIsNotReadIsToldWhenTheFileIsOpened) {
  if (!has_library()) GTEST_SKIP() << "liblockstep_arrow.so is not built";
  const std::string what = read_all(bytes_of(table("lzo.parquet")));
  EXPECT_NE(what.find("LZO compression"), std::string::npos) << what;
  EXPECT_NE(what.find("write it with zstd"), std::string::npos) << what;
}

TEST(TableFiles, ChangedBytesAreErrorsOrValues) {
  if (!has_library()) GTEST_SKIP() << "liblockstep_arrow.so is not built";
  SplitMix64 random(7);
  for (const char* name : {"pages.parquet", "plain.parquet", "file.arrow", "stream.arrow"}) {
    const std::string whole = bytes_of(table(name));
    for (int i = 0; i < 200; ++i) {
      std::string changed = whole;
      for (int k = 0; k < 3; ++k)
        changed[static_cast<size_t>(random.below(static_cast<int64_t>(changed.size())))] =
            static_cast<char>(random.below(256));
      read_all(changed);
    }
  }
}

/// With LOCKSTEP_LARGE_TABLE (and its rows as JSON lines, LOCKSTEP_LARGE_LINES): how long opening takes, and what memory.
TEST(TableFiles, AreOpenedAtOnceHoweverLarge) {
  const char *name = std::getenv("LOCKSTEP_LARGE_TABLE"), *lines = std::getenv("LOCKSTEP_LARGE_LINES");
  if (name == nullptr || lines == nullptr) GTEST_SKIP() << "LOCKSTEP_LARGE_TABLE and LOCKSTEP_LARGE_LINES name none";
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const DataFile expected(lines);
  expected.forget();
  auto begin = Clock::now();
  const Dataset data({name}, {});
  const double opening = seconds(begin);
  std::printf("opened %ld rows in %.3f s, resident %.0f MiB\n", static_cast<long>(data.size()), opening,
              static_cast<double>(read_memory().resident_bytes) / 1048576.0);
  const DataFile file(name);
  ASSERT_EQ(file.size(), expected.size());
  begin = Clock::now();
  SplitMix64 random(3);
  int64_t most = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto row = static_cast<size_t>(random.below(static_cast<int64_t>(file.size())));
    ASSERT_EQ(file.row(row), expected.row(row)) << row;
    if (i % 50 == 0) expected.forget();
    most = std::max(most, static_cast<int64_t>(read_memory().resident_bytes));
  }
  std::printf("2000 rows in any order in %.2f s, resident at most %.0f MiB\n", seconds(begin),
              static_cast<double>(most) / 1048576.0);
  EXPECT_LT(opening, 1.0);
  EXPECT_LT(most, int64_t{200} << 20);
}

}  // namespace
}  // namespace lockstep
