#include "lockstep/doctor/machine.h"

#include <gtest/gtest.h>

#include "lockstep/doctor/machine_facts.h"

namespace lockstep {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(SharedMemory, EnoughIsFine) {
  EXPECT_EQ(
      judge_shared_memory({.ranks = 4, .free_bytes = kGiB, .wanted_bytes = 130 * kMiB, .least_bytes = 4 * kMiB}).level,
      Level::kOk);
}

TEST(SharedMemory, ADockerDefaultIsAWarningWithTheSizeToAskFor) {
  const CheckResult result =
      judge_shared_memory({.ranks = 4, .free_bytes = 64 * kMiB, .wanted_bytes = 130 * kMiB, .least_bytes = 4 * kMiB});
  EXPECT_EQ(result.level, Level::kWarning);
  EXPECT_TRUE(contains(result.text, "smaller pieces")) << result.text;
  EXPECT_TRUE(contains(result.cure, "--shm-size=130m")) << result.cure;
}

TEST(SharedMemory, TooLittleGoesOverGlooUnlessItIsRequired) {
  SharedMemoryFacts facts{.ranks = 4, .free_bytes = kMiB, .wanted_bytes = 130 * kMiB, .least_bytes = 4 * kMiB};
  EXPECT_EQ(judge_shared_memory(facts).level, Level::kWarning);
  EXPECT_TRUE(contains(judge_shared_memory(facts).text, "Gloo"));
  facts.required = true;
  EXPECT_EQ(judge_shared_memory(facts).level, Level::kFailure);
  facts.free_bytes = -1;
  EXPECT_TRUE(contains(judge_shared_memory(facts).text, "there is no /dev/shm"));
}

TEST(SharedMemory, OneRankNeedsNone) {
  const CheckResult result = judge_shared_memory(shared_memory_facts(World{}, "auto"));
  EXPECT_EQ(result.level, Level::kOk);
  EXPECT_TRUE(contains(result.text, "not needed: one rank")) << result.text;
}

TEST(SharedMemory, WhatIsNotTakenMayBeFull) {
  World world{.size = 4, .local_size = 2, .num_nodes = 2};
  EXPECT_EQ(shared_memory_facts(world, "auto").unused, "the ranks stand on several machines");
  EXPECT_EQ(shared_memory_facts(world, "shm").unused, "");
  EXPECT_EQ(shared_memory_facts(world, "gloo").unused, "--transport gloo");
  EXPECT_EQ(judge_shared_memory({.ranks = 2, .free_bytes = 0, .unused = "--transport gloo"}).level, Level::kOk);
}

TEST(SharedMemory, TheNeedIsWhatTheTransportTakes) {
  // 4 slots of 4 MiB and 4 of 64 KiB a rank, and as much left free.
  const SharedMemoryFacts facts = shared_memory_facts(World{.size = 2, .local_size = 2}, "auto");
  EXPECT_EQ(facts.wanted_bytes, 2 * 2 * 4 * (4 * kMiB + 64 * 1024));
  EXPECT_EQ(facts.least_bytes, 2 * 2 * 4 * (64 * 1024 + 64 * 1024));
  EXPECT_EQ(facts.unused, "");
}

TEST(Disk, MustHoldACheckpointAndShouldHoldTwo) {
  EXPECT_EQ(judge_disk({.dir = "out", .free_bytes = 10 * kGiB, .checkpoint_bytes = 4 * kGiB}).level, Level::kOk);
  const CheckResult tight = judge_disk({.dir = "out", .free_bytes = 6 * kGiB, .checkpoint_bytes = 4 * kGiB});
  EXPECT_EQ(tight.level, Level::kWarning);
  EXPECT_TRUE(contains(tight.cure, "free 2.00 GiB more")) << tight.cure;
  const CheckResult full = judge_disk({.dir = "out", .free_bytes = 3 * kGiB, .checkpoint_bytes = 4 * kGiB});
  EXPECT_EQ(full.level, Level::kFailure);
  EXPECT_TRUE(contains(full.cure, "free 1.00 GiB")) << full.cure;
}

TEST(Disk, WithoutAModelOnlyTheSpaceIsTold) {
  EXPECT_EQ(judge_disk({.dir = "out", .free_bytes = 1}).level, Level::kOk);
}

TEST(Disk, AFolderThatCannotBeWrittenIsAFailure) {
  EXPECT_EQ(judge_disk({.dir = "out", .error = "this user may not write in out"}).level, Level::kFailure);
  EXPECT_TRUE(contains(disk_facts("/proc/self/status/out", 0).error, "is no folder"));
  EXPECT_TRUE(contains(disk_facts("/proc/out", 0).error, "may not write in /proc"));  // root neither
}

TEST(Disk, TheFolderNeedNotBeThere) {
  const DiskFacts facts = disk_facts(testing::TempDir() + "lockstep_not_there/a/b", 0);
  EXPECT_EQ(facts.error, "");
  EXPECT_GT(facts.free_bytes, 0);
}

TEST(OpenFiles, GrowWithFilesAndRanks) {
  EXPECT_EQ(open_files_needed(0, 1), 68);
  EXPECT_EQ(open_files_needed(37, 8), 64 + 37 + 32);
}

TEST(OpenFiles, FewAreAWarningAndTooFewAFailure) {
  EXPECT_EQ(judge_open_files({.soft = 20000, .hard = 20000, .needed = 68}).level, Level::kOk);
  EXPECT_EQ(judge_open_files({.soft = -1, .hard = -1, .needed = 68}).level, Level::kOk);
  const CheckResult few = judge_open_files({.soft = 256, .hard = 1048576, .needed = 68});
  EXPECT_EQ(few.level, Level::kWarning);
  EXPECT_EQ(few.cure, "ulimit -n 4096");
  const CheckResult tiny = judge_open_files({.soft = 40, .hard = 64, .needed = 68});
  EXPECT_EQ(tiny.level, Level::kFailure);
  EXPECT_TRUE(tiny.cure.starts_with("ulimit -n 64; root must allow more")) << tiny.cure;
  EXPECT_TRUE(judge_open_files({.soft = 64, .hard = 64, .needed = 68}).cure.starts_with("root must allow more"));
}

TEST(OpenFiles, ThousandsOfRanksNeedMoreThanTheComfortableNumber) {
  EXPECT_EQ(judge_open_files({.soft = 2048, .hard = -1, .needed = open_files_needed(0, 1000)}).level, Level::kFailure);
}

TEST(Clock, AgreesOrIsNamed) {
  EXPECT_EQ(judge_clock({.wall_seconds = 1.8e9, .measured = 0.1, .drift = 0.0001}).level, Level::kOk);
  const CheckResult moved = judge_clock({.wall_seconds = 1.8e9, .measured = 0.1, .drift = -3});
  EXPECT_EQ(moved.level, Level::kWarning);
  EXPECT_TRUE(contains(moved.text, "-3.000 s")) << moved.text;
  const CheckResult old = judge_clock({.wall_seconds = 3600, .measured = 0.1, .drift = 0});
  EXPECT_EQ(old.level, Level::kWarning);
  EXPECT_TRUE(contains(old.text, "the year 1970")) << old.text;
}

/// It may be set, or this thread stand still, while it is looked at: not three times.
TEST(Clock, OfThisMachineIsFine) {
  CheckResult result = judge_clock(clock_facts());
  for (int again = 0; again < 2 && result.level != Level::kOk; ++again) result = judge_clock(clock_facts());
  EXPECT_EQ(result.level, Level::kOk) << result.text;
}

TEST(ClocksOfRanks, MoreThanASecondApartNamesBoth) {
  EXPECT_EQ(judge_clocks_of_ranks({100.0, 100.2, 99.9}).level, Level::kOk);
  const CheckResult apart = judge_clocks_of_ranks({100.0, 104.5, 99.9});
  EXPECT_EQ(apart.level, Level::kWarning);
  EXPECT_TRUE(contains(apart.text, "rank 1 is 4.6 s ahead of rank 2")) << apart.text;
}

TEST(Memory, MustHoldWhatThePlanSays) {
  MemoryFacts facts{.total_bytes = 16 * kGiB, .available_bytes = 10 * kGiB, .ranks = 2, .state_bytes = 2 * kGiB};
  EXPECT_EQ(judge_memory(facts).level, Level::kOk);
  facts.state_bytes = 9 * kGiB / 2;
  EXPECT_EQ(judge_memory(facts).level, Level::kWarning);
  facts.state_bytes = 6 * kGiB;
  const CheckResult full = judge_memory(facts);
  EXPECT_EQ(full.level, Level::kFailure);
  EXPECT_EQ(full.code, ExitCode::kMemory);
  EXPECT_EQ(full.text, "10.00 GiB of 16.00 GiB free, 2 ranks hold 6.00 GiB each without activations");
}

TEST(Memory, WithoutAModelOnlyTheSpaceIsTold) {
  EXPECT_EQ(judge_memory({.total_bytes = kGiB, .available_bytes = 1, .limited = true}).level, Level::kOk);
}

TEST(Cores, MoreThreadsThanCoresAreAWarningWithTheNumberThatFits) {
  EXPECT_EQ(judge_cores({.cores = 8, .ranks = 2, .threads = 4}).level, Level::kOk);
  const CheckResult many = judge_cores({.cores = 8, .ranks = 2, .threads = 8});
  EXPECT_EQ(many.level, Level::kWarning);
  EXPECT_EQ(many.cure, "OMP_NUM_THREADS=4");
  EXPECT_EQ(judge_cores({.cores = 8, .ranks = 2, .threads = 8, .threads_given = true}).cure,
            "OMP_NUM_THREADS=4, or leave it unset under --nproc");
}

TEST(Cores, MoreRanksThanCoresAreAWarning) {
  EXPECT_EQ(judge_cores({.cores = 2, .ranks = 3, .threads = 1}).cure, "--nproc 2 at most");
}

TEST(Cores, AControlGroupMayGiveLess) {
  const CheckResult result = judge_cores({.cores = 64, .quota = 2, .ranks = 2, .threads = 32});
  EXPECT_EQ(result.level, Level::kWarning);
  EXPECT_TRUE(contains(result.text, "2 cores of 64 (limited by the control group)")) << result.text;
}

TEST(HugePages, OnlyNeverIsWorthAWord) {
  EXPECT_EQ(judge_huge_pages("always [madvise] never").level, Level::kOk);
  EXPECT_EQ(judge_huge_pages("always madvise [never]").level, Level::kWarning);
  EXPECT_EQ(judge_huge_pages("").level, Level::kOk);
}

TEST(Copy, HasABandwidth) { EXPECT_GT(copy_bandwidth(), 1e6); }

TEST(Films, NeedBothPrograms) {
  EXPECT_EQ(judge_film_programs("/usr/bin/ffmpeg", "/usr/bin/ffprobe").text,
            "/usr/bin/ffmpeg and /usr/bin/ffprobe read them");
  const CheckResult half = judge_film_programs("/usr/bin/ffmpeg", "");
  EXPECT_EQ(half.level, Level::kOk);
  EXPECT_NE(half.text.find("no ffprobe on PATH"), std::string::npos) << half.text;
}

}  // namespace
}  // namespace lockstep
