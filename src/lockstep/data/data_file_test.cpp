// Tables against the JSON lines of the same rows (tests/fixtures/tables, written by pyarrow), in every order.
#include "lockstep/data/data_file.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/data/random.h"

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_purge_allocator();  // of sanitizer/allocator_interface.h, which g++ does not bring
#endif

namespace lockstep {
namespace {

namespace fs = std::filesystem;

fs::path table(const std::string& name) { return fs::path(LOCKSTEP_FIXTURES) / "tables" / name; }

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
  const std::string what = read_all(bytes_of(table("lzo.parquet")));
  EXPECT_NE(what.find("LZO compression"), std::string::npos) << what;
  EXPECT_NE(what.find("write it with zstd"), std::string::npos) << what;
}

TEST(TableFiles, ChangedBytesAreErrorsOrValues) {
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

// A kilobyte each: a text of a megabyte that a list names 700 times, a list of 2^30 nulls, a map of 200,000 names.
TEST(TableFiles, ARowThatStandsForGigabytesIsRefused) {
  for (const char* name : {"heavy.parquet", "heavy.arrow", "nulls.arrow"}) {
    const std::string refused = read_all(bytes_of(table(name)));
    EXPECT_NE(refused.find("a row of more than 512 MiB"), std::string::npos) << name << ": " << refused;
  }
  EXPECT_EQ(read_all(bytes_of(table("names.parquet"))), "");
}

/// What was freed is kept for a while under the address sanitizer: until it is asked for, which takes its time.
#if defined(__SANITIZE_ADDRESS__)
constexpr int kRowsBetweenLooks = 100;
void let_go_of_what_was_freed() { __sanitizer_purge_allocator(); }
#else
constexpr int kRowsBetweenLooks = 1;
void let_go_of_what_was_freed() {}
#endif

/// A stream whose batches have a thousand rows, those of rows.jsonl again and again.
fs::path large_stream(int64_t times) {
  const std::string whole = bytes_of(table("thousand.arrow"));
  uint32_t schema_bytes = 0;  // of the first message, which has no body, behind its marker
  std::memcpy(&schema_bytes, whole.data() + 4, sizeof schema_bytes);
  const size_t begin = 8 + schema_bytes, end = whole.size() - 8;  // which are the marker of the end
  fs::path name = fs::temp_directory_path() / fmt::format("lockstep_large_{}.arrow", ::getpid());
  std::ofstream out(name, std::ios::binary);
  out << whole.substr(0, begin);
  for (int64_t i = 0; i < times; ++i) out << std::string_view(whole).substr(begin, end - begin);
  out << whole.substr(end);
  return name;
}

TEST(TableFiles, AreNotHeldInMemoryHoweverLarge) {
  static constexpr int64_t kTimes = 1000;
  const DataFile expected(table("rows.jsonl").string());
  const fs::path name = large_stream(kTimes);
  const auto bytes = static_cast<int64_t>(fs::file_size(name));
  let_go_of_what_was_freed();
  const int64_t before = read_memory().anonymous_bytes;
  int64_t most = 0;
  {
    const DataFile file(name.string());
    ASSERT_EQ(file.size(), 1000 * static_cast<size_t>(kTimes));
    SplitMix64 random(3);
    for (int i = 0; i < 2000; ++i) {
      const auto row = static_cast<size_t>(random.below(static_cast<int64_t>(file.size())));
      EXPECT_EQ(file.row(row), expected.row(row % 1000 % expected.size())) << row;
      if (i % kRowsBetweenLooks != 0) continue;
      let_go_of_what_was_freed();
      most = std::max(most, read_memory().anonymous_bytes);
    }
  }
  fs::remove(name);
  EXPECT_GT(bytes, int64_t{100} << 20);
  EXPECT_LT(most - before, bytes / 8);
  std::printf("%.0f MiB of rows, at most %.1f MiB held\n", static_cast<double>(bytes) / 1048576.0,
              static_cast<double>(most - before) / 1048576.0);
}

}  // namespace
}  // namespace lockstep
