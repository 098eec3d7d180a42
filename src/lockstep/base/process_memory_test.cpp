#include "lockstep/base/process_memory.h"

#include <cstring>

#include <gtest/gtest.h>
#include <sys/mman.h>

namespace lockstep {
namespace {

TEST(MemoryWatch, ReadsTheKernelsTextInBytes) {
  const auto memory = parse_memory(
      "Name:\tlockstep\nVmPeak:\t  900 kB\nVmHWM:\t    2048 kB\nVmRSS:\t     512 kB\nRssAnon:\t 256 kB\n"
      "RssShmem:\t 128 kB\n");
  EXPECT_EQ(memory.peak_bytes, 2097152);
  EXPECT_EQ(memory.resident_bytes, 524288);
  EXPECT_EQ(memory.anonymous_bytes, 262144);
  EXPECT_EQ(memory.shared_bytes, 131072);
}

TEST(MemoryWatch, GivesZerosForATextWithoutTheFields) {
  EXPECT_EQ(parse_memory("").peak_bytes, 0);
  EXPECT_EQ(parse_memory("VmRSS:").resident_bytes, 0);
}

TEST(MemoryWatch, SeesThisProcessGrowAndItsPeakStartOver) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  const auto before = read_memory();
  ASSERT_GT(before.resident_bytes, 0);
  {  // straight from the system: an allocator, and more so a sanitizer's, may keep what is freed
    void* touched = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(touched, MAP_FAILED);
    std::memset(touched, 1, kBytes);
    ::munmap(touched, kBytes);
  }
  const auto after = read_memory();
  EXPECT_GE(after.peak_bytes, before.resident_bytes + kBytes / 2);
  if (reset_peak()) {
    EXPECT_LT(read_memory().peak_bytes, after.peak_bytes);
  }
}

TEST(MemoryWatch, ACopyWillHoldThePagesThatItsOriginalHasRead) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  const int64_t held = settled_bytes();
  settles_like({.file_bytes = read_memory().file_bytes + kBytes});
  EXPECT_NEAR(static_cast<double>(settled_bytes() - held), static_cast<double>(kBytes),
              0.1 * static_cast<double>(kBytes));
  settles_like({});
  EXPECT_NEAR(static_cast<double>(settled_bytes() - held), 0, 0.1 * static_cast<double>(kBytes));
}

}  // namespace
}  // namespace lockstep
