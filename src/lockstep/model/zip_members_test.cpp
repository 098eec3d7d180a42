#include "lockstep/model/zip_members.h"

#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/model/test_torch_file.h"

namespace lockstep {
namespace {

using test_torch::as_bytes;
using test_torch::little;
using test_torch::Zip;
using test_torch::ZipPart;

std::string error_of(const std::string& bytes) {
  try {
    (void)ZipMembers(as_bytes(bytes), "m.bin");
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    return e.message();
  }
  return "no error";
}

std::string member(const std::string& bytes, const char* name) {
  const ZipMembers zip(as_bytes(bytes), "m.bin");
  const ZipMember* const found = zip.find(name);
  return found == nullptr ? "absent" : bytes.substr(found->begin, found->size());
}

Zip two(test_torch::ZipOptions options = {}) {
  Zip zip(std::move(options));
  zip.add({.name = "archive/data.pkl", .bytes = "first"});
  zip.add({.name = "archive/data/0", .bytes = "second"});
  return zip;
}

TEST(ZipMembersTest, FindsStoredBytesBehindPaddedHeaders) {
  for (const bool zip64 : {false, true}) {
    const std::string bytes = two({.zip64 = zip64}).bytes();
    EXPECT_EQ(member(bytes, "archive/data.pkl"), "first");
    EXPECT_EQ(member(bytes, "archive/data/0"), "second");
    EXPECT_EQ(member(bytes, "data/0"), "absent");
    const ZipMembers zip(as_bytes(bytes), "m.bin");
    EXPECT_EQ(zip.first_folder(), "archive");
    EXPECT_EQ(zip.find("archive/data/0")->begin % 64, 0U) << "the test's files are padded as torch's";
  }
}

TEST(ZipMembersTest, ACommentMayLookLikeTheEnd) {
  const std::string bytes = two({.comment = "PK\5\6" + std::string(30, 'x')}).bytes();
  EXPECT_EQ(member(bytes, "archive/data/0"), "second");
}

TEST(ZipMembersTest, MembersThatAreNotPlainBytesAreNamed) {
  const auto with = [](const ZipPart& part) {
    Zip zip = two();
    zip.add(part);
    return error_of(zip.bytes());
  };
  EXPECT_EQ(with({.name = "a/x", .bytes = "abc", .method = 8}),
            "m.bin: member a/x: expected bytes as they are, found compressed ones (method 8)");
  EXPECT_EQ(with({.name = "a/x", .bytes = "abc", .flags = 1}),
            "m.bin: member a/x: expected plain bytes, found encrypted ones");
  EXPECT_EQ(with({.name = "archive/data/0", .bytes = "abc"}), "m.bin: member archive/data/0 stands there twice");
  EXPECT_EQ(with({.name = "a/x\x1b", .bytes = "abc", .local_name = "a/y"}),
            "m.bin: member a/x\\x1b: its header at byte 134 is another member's");
}

TEST(ZipMembersTest, NumbersThatPointOutsideAreRefused) {
  const std::string good = two().bytes();
  const size_t end = good.rfind("PK\5\6"), entry = good.find("PK\1\2");
  const auto with = [&](size_t at, const std::string& bytes) {
    std::string changed = good;
    return error_of(changed.replace(at, bytes.size(), bytes));
  };
  EXPECT_EQ(with(entry + 24, little(7, 4)),
            "m.bin: member archive/data.pkl: expected bytes as they are, found compressed ones (method 0)");
  EXPECT_EQ(with(entry + 20, little(1000, 4) + little(1000, 4)),
            "m.bin: member archive/data.pkl: expected 1000 bytes from byte 64 on, the directory begins at 134");
  EXPECT_EQ(with(entry + 42, little(3, 4)),
            "m.bin: member archive/data.pkl: expected its header at byte 3, found something else");
  EXPECT_EQ(with(entry + 42, little(0xFFFFFFFE, 4)),
            "m.bin: member archive/data.pkl: expected its header at byte 4294967294, found something else");
  EXPECT_EQ(with(end + 16, little(good.size(), 4)),
            "m.bin: the directory is said to stand in bytes [278, +122) of 256");
  EXPECT_EQ(with(end + 10, little(3, 2)),
            "m.bin: expected an entry of the directory at byte 256, found something else");
  EXPECT_EQ(with(end + 12, little(100, 4)), "m.bin: the directory of 100 bytes ends within entry 2 of 2");
  EXPECT_EQ(with(end, "XX"), "m.bin: expected a zip file's directory at its end, found none: truncated");
  EXPECT_EQ(error_of(""), "m.bin: expected a zip file's directory at its end, found none: truncated");

  const std::string large = two({.zip64 = true}).bytes();
  const auto with64 = [&](size_t at, uint64_t value) {
    std::string changed = large;
    return error_of(changed.replace(at, 8, little(value, 8)));
  };
  const size_t end64 = large.rfind("PK\6\6"), locator = large.rfind("PK\6\7");
  EXPECT_EQ(with64(locator + 8, UINT64_MAX),
            "m.bin: expected the zip64 directory's end at byte 18446744073709551615, found something else");
  EXPECT_EQ(with64(end64 + 32, UINT64_MAX),
            "m.bin: expected at most 1048576 members, the file says 18446744073709551615");
  EXPECT_NE(with64(end64 + 48, UINT64_MAX - 5).find("the directory is said to stand"), std::string::npos);
  EXPECT_NE(with64(large.find("PK\1\2") + 46 + 16 + 4, UINT64_MAX).find("found compressed ones"), std::string::npos);
}

TEST(ZipMembersTest, CutAnywhereAndChangedAtRandomItAnswersOrRefuses) {
  constexpr uint32_t kSeed = 20251122;
  std::mt19937 random(kSeed);
  for (const bool zip64 : {false, true}) {
    const std::string good = two({.zip64 = zip64}).bytes();
    for (size_t length = 0; length < good.size(); ++length) EXPECT_NE(error_of(good.substr(0, length)), "no error");
    for (int round = 0; round < 20'000; ++round) {
      std::string bytes = good;
      for (auto changes = 1 + random() % 3; changes > 0; --changes)
        bytes[random() % bytes.size()] = static_cast<char>(random());
      const std::vector<char> exact(bytes.begin(), bytes.end());  // no slack behind the last byte
      try {
        const ZipMembers zip(std::as_bytes(std::span<const char>(exact)), "m.bin");
        for (const char* name : {"archive/data.pkl", "archive/data/0"}) {
          const ZipMember* const found = zip.find(name);
          ASSERT_TRUE(found == nullptr || (found->begin <= found->end && found->end <= exact.size()))
              << "seed " << kSeed << " round " << round;
        }
      } catch (const UserError&) {
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
