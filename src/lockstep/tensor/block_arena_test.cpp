#include "lockstep/tensor/block_arena.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/process.h"  // Descriptor

namespace lockstep {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kNoLimit = SIZE_MAX;

/// Bytes of the pages from one address to the other that the system has given, be they swapped out. What else the process
/// holds, libraries and what a sanitizer keeps, moves as it likes.
size_t given_between(uintptr_t begin, uintptr_t end) {
  constexpr size_t kPage = 4096;
  constexpr uint64_t kPresentOrSwapped = uint64_t{3} << 62;
  std::vector<uint64_t> pages((end + kPage - 1) / kPage - begin / kPage);
  const size_t bytes = pages.size() * sizeof pages[0];
  const Descriptor map(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(::pread(map.get(), pages.data(), bytes, static_cast<off_t>(begin / kPage * sizeof pages[0])),
            static_cast<ssize_t>(bytes));
  return kPage *
         static_cast<size_t>(std::ranges::count_if(pages, [](uint64_t page) { return page & kPresentOrSwapped; }));
}

/// What the kernel does by itself every few seconds: it makes huge pages of small ones where it may.
void make_huge_pages(uintptr_t begin, uintptr_t end) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older headers lack; an older kernel refuses it
  constexpr uintptr_t kHuge = 2 * kMiB;
  for (uintptr_t at = begin / kHuge * kHuge; at < end; at += kHuge)
    ::madvise(reinterpret_cast<void*>(at), kHuge, kCollapse);
}

TEST(BlockArena, WhatIsFreedServesTakersOfOtherSizes) {
  BlockArena arena;
  void* const first = arena.take(3 * kMiB, kNoLimit);
  void* const second = arena.take(2 * kMiB, kNoLimit);
  void* const kept = arena.take(kMiB, kNoLimit);
  const size_t held = arena.held();
  EXPECT_EQ(held, 6 * kMiB);
  arena.give(first, 3 * kMiB);
  arena.give(second, 2 * kMiB);
  EXPECT_EQ(arena.take(5 * kMiB, kNoLimit), first);  // both grew together
  arena.give(first, 5 * kMiB);
  for (int i = 0; i < 5; ++i) EXPECT_LT(arena.take(kMiB, kNoLimit), kept);
  EXPECT_EQ(arena.held(), held);
}

TEST(BlockArena, AFreeStretchThatIsTooSmallIsBuiltUpon) {
  BlockArena arena;
  void* const only = arena.take(3 * kMiB, kNoLimit);
  arena.give(only, 3 * kMiB);
  EXPECT_EQ(arena.take(4 * kMiB, kNoLimit), only);
  EXPECT_EQ(arena.held(), 4 * kMiB);
}

TEST(BlockArena, PagesBeyondTheRoomGoBack) {
  BlockArena arena;
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(arena.take(kMiB + 64, kNoLimit));
  for (int i = 0; i < 8; i += 2) arena.give(blocks[static_cast<size_t>(i)], kMiB + 64);
  (void)arena.take(3 * kMiB, 8 * kMiB);  // in no hole; 4 of 8 + 3 are alive
  EXPECT_LE(arena.held(), 8 * kMiB);
  EXPECT_GE(arena.held(), 7 * kMiB);
}

/// Blocks of random sizes, each full of its own byte: none overlaps another, and the kernel's count is ours.
TEST(BlockArena, KeepsBlocksApartAndCountsWhatTheKernelCounts) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  struct Block {
    unsigned char* data;
    size_t bytes;
    int byte;
  };
  BlockArena arena;
  std::vector<Block> blocks;
  uintptr_t lowest = UINTPTR_MAX, highest = 0;
  size_t alive = 0, most_alive = 0;
  const auto give = [&](size_t i) {
    const Block block = blocks[i];
    EXPECT_TRUE(std::all_of(block.data, block.data + block.bytes, [&](int byte) { return byte == block.byte; }));
    arena.give(block.data, block.bytes);
    alive -= block.bytes;
    blocks[i] = blocks.back();
    blocks.pop_back();
  };
  for (int i = 0; i < 4000; ++i) {
    const size_t most = size_t{1} << (10 + random() % 12);
    const size_t bytes = 64 * (1 + random() % (most / 64));
    while (alive + bytes > 48 * kMiB) give(random() % blocks.size());
    alive += bytes;
    most_alive = std::max(most_alive, alive);
    const size_t room = most_alive + most_alive / 32;
    auto* const data = static_cast<unsigned char*>(arena.take(bytes, room));
    const auto at = reinterpret_cast<uintptr_t>(data);
    lowest = std::min(lowest, at);
    highest = std::max(highest, at + bytes);
    const int byte = static_cast<int>(random() % 256);
    std::memset(data, byte, bytes);
    blocks.push_back({data, bytes, byte});
    ASSERT_GE(arena.held(), alive);
    // Of the free stretches at most a page at either end stays beyond the room.
    ASSERT_LE(arena.held(), room + 8192 * (blocks.size() + 1));
  }
  EXPECT_EQ(given_between(lowest, highest), arena.held());
  make_huge_pages(lowest, highest);
  EXPECT_EQ(given_between(lowest, highest), arena.held());
  while (!blocks.empty()) give(blocks.size() - 1);
}

TEST(BlockArena, AHollowOneKeepsTheSameBooks) {
  std::mt19937_64 random(5);
  BlockArena real, hollow(/*hollow=*/true);
  std::vector<std::array<void*, 2>> blocks;
  std::vector<size_t> sizes;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() > 30) {
      const size_t at = random() % blocks.size();
      real.give(blocks[at][0], sizes[at]);
      hollow.give(blocks[at][1], sizes[at]);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(at));
      sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    sizes.push_back(64 * (1 + random() % 20000));
    blocks.push_back({real.take(sizes.back(), 24 * kMiB), hollow.take(sizes.back(), 24 * kMiB)});
    ASSERT_EQ(real.held(), hollow.held());
  }
}

}  // namespace
}  // namespace lockstep
