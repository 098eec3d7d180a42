#include "lockstep/comm/shared_memory.h"

#include <cstring>

#include <gtest/gtest.h>

#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {

TEST(SharedMemory, EachRankReadsWhatTheOthersWrote) {
  run_ranks(3, [](Rank& rank) {
    const auto memory = SharedMemory::among(rank.control());
    ASSERT_NE(memory, nullptr);
    constexpr int64_t kPart = 5000;
    memory->grow(3 * kPart);
    ASSERT_EQ(memory->size(), 3 * kPart);
    EXPECT_EQ(memory->bytes()[rank.id() * kPart + 7], std::byte{0}) << "pages begin as zeros";
    std::memset(memory->bytes() + rank.id() * kPart, 'a' + rank.id(), kPart);
    rank.control().barrier("written");
    memory->protect();
    for (int64_t i = 0; i < 3 * kPart; ++i) {
      ASSERT_EQ(static_cast<char>(memory->bytes()[i]), static_cast<char>('a' + i / kPart)) << i;
    }
  });
}

TEST(SharedMemory, TwoJobsOfOneHostHaveMemoryOfTheirOwn) {
  run_ranks(2, [](Rank& rank) {
    const auto one = SharedMemory::among(rank.control()), two = SharedMemory::among(rank.control());
    one->grow(8);
    two->grow(8);
    if (rank.id() == 0) one->bytes()[0] = std::byte{1};
    rank.control().barrier("written");
    EXPECT_EQ(one->bytes()[0], std::byte{1});
    EXPECT_EQ(two->bytes()[0], std::byte{0});
  });
}

TEST(SharedMemory, AStrayWriteEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(run_ranks(1,
                         [](Rank& rank) {
                           const auto memory = SharedMemory::among(rank.control());
                           memory->grow(4096);
                           memory->protect();
                           memory->bytes()[5] = std::byte{1};
                         }),
               "");
}

TEST(SharedMemory, SaysWhatCannotBeHad) {
  run_ranks(1, [](Rank& rank) {
    const auto memory = SharedMemory::among(rank.control());
    try {
      memory->grow(int64_t{1} << 60);
      FAIL() << "expected an error";
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kMemory);
      EXPECT_NE(error.hint().find("--shared_weights false"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace lockstep
