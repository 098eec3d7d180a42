#include "lockstep/guard/board.h"

#include <atomic>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

#include "lockstep/base/worker.h"
#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/report.h"
#include "lockstep/guard/straggling.h"

namespace lockstep {
namespace {

struct Pattern {
  std::array<uint64_t, 13> words{};
};

TEST(SharedValue, ReadersSeeWholeValuesOrNone) {
  SharedValue<Pattern> shared;
  std::atomic<bool> done{false};
  std::array<uint64_t, 2> whole{}, torn{};
  std::array<std::unique_ptr<Worker>, 2> readers;
  for (size_t i = 0; i < readers.size(); ++i) {
    readers.at(i) = std::make_unique<Worker>("reader", [&, i](std::stop_token) {
      uint64_t newest = 0;
      while (!done) {
        Pattern seen;
        if (!shared.read(seen)) {
          torn.at(i) += 1;
          continue;
        }
        for (const uint64_t word : seen.words) ASSERT_EQ(word, seen.words[0]);
        ASSERT_GE(seen.words[0], newest);
        newest = seen.words[0];
        whole.at(i) += 1;
      }
    });
  }
  for (uint64_t i = 1; i <= 50'000; ++i) {
    Pattern next;
    next.words.fill(i);
    shared.write(next);
  }
  done = true;
  for (auto& reader : readers) reader->join();
  EXPECT_EQ(shared.version(), 50'000U);
  EXPECT_EQ(shared.read_any().words[12], 50'000U);
}

TEST(SharedValue, AWriterThatDiedWhileWritingBlocksNobody) {
  SharedValue<Pattern> shared;
  shared.write({});
  // An odd version is what a death in the middle of a write leaves behind.
  auto* version = reinterpret_cast<std::atomic<uint64_t>*>(&shared);
  version->fetch_add(1);
  Pattern seen;
  EXPECT_FALSE(shared.read(seen));
  EXPECT_EQ(shared.read_any().words[0], 0U);
}

TEST(SharedValue, TextsAreCutAndEnd) {
  EXPECT_EQ(FixedText<8>("1234567890").view(), "1234567");
  EXPECT_EQ(FixedText<8>("").view(), "");
  FixedText<8> full;
  full.bytes.fill('x');
  EXPECT_EQ(full.view(), "xxxxxxxx");
}

/// A file in memory of `size` bytes, with the first words of a board when `board`.
int memory_file(size_t size, int seals, bool board, uint64_t version = Board::kVersion) {
  const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(::ftruncate(fd, static_cast<off_t>(size)), 0);
  const std::array<uint64_t, 2> words{Board::kMagic, version};
  if (board && size >= sizeof words) {
    EXPECT_EQ(::pwrite(fd, words.data(), sizeof words, 0), static_cast<ssize_t>(sizeof words));
  }
  EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(BoardMemory, MapsOnlySealedBoardsOfThisVersion) {
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  EXPECT_NE(BoardMemory::map(memory_file(sizeof(Board), kSeals, true)), nullptr);
  EXPECT_EQ(BoardMemory::map(memory_file(sizeof(Board) - 1, kSeals, true)), nullptr);
  EXPECT_EQ(BoardMemory::map(memory_file(sizeof(Board) + 4096, kSeals, true)), nullptr);
  EXPECT_EQ(BoardMemory::map(memory_file(0, kSeals, true)), nullptr);
  EXPECT_EQ(BoardMemory::map(memory_file(sizeof(Board), F_SEAL_GROW, true)), nullptr);  // could shrink under the reader
  EXPECT_EQ(BoardMemory::map(memory_file(sizeof(Board), kSeals | F_SEAL_WRITE, true)), nullptr);
  EXPECT_EQ(BoardMemory::map(memory_file(sizeof(Board), kSeals, false)), nullptr);
  EXPECT_EQ(BoardMemory::map(memory_file(sizeof(Board), kSeals, true, Board::kVersion + 1)), nullptr);
  EXPECT_EQ(BoardMemory::map(::open("/dev/null", O_RDWR | O_CLOEXEC)), nullptr);
  EXPECT_EQ(BoardMemory::map(::open("/dev/zero", O_RDWR | O_CLOEXEC)), nullptr);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  EXPECT_EQ(BoardMemory::map(ends[0]), nullptr);
  ::close(ends[1]);
  EXPECT_EQ(BoardMemory::map(-1), nullptr);
}

TEST(BoardMemory, ClosesWhatItRefuses) {
  const int fd = memory_file(100, F_SEAL_GROW, false);
  EXPECT_EQ(BoardMemory::map(fd), nullptr);
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST(BoardMemory, BothSidesSeeOneBoard) {
  const auto rank = BoardMemory::create();
  const auto agent = BoardMemory::map(::dup(rank->fd()));
  ASSERT_NE(agent, nullptr);
  rank->board().step.store(7);
  agent->board().has_ending.store(1);
  EXPECT_EQ(agent->board().step.load(), 7);
  EXPECT_EQ(rank->board().has_ending.load(), 1U);
  EXPECT_EQ(::ftruncate(rank->fd(), 100), -1);
}

/// What everybody does with a report: nothing of it may crash, or take long.
void use(const RankReport& report) {
  EXPECT_LE(report.groups.size(), Board::kGroups);
  for (const auto& group : report.groups) EXPECT_LE(group.tail.size(), FlightRing::kSize);
  for (const auto& group : report.groups) {
    for (const auto& record : group.tail) EXPECT_LT(record.describe().size(), 1000U);
  }
  EXPECT_LT(report.place().size(), 1000U);
  RankReport other{.rank = 1, .joined = true, .life = Life::kRunning};
  other.groups.push_back({.name = "data", .entered = 5, .waiting_seq = 5, .waiting_seconds = 20});
  Census census;
  census.add(report);
  census.add(other);
  EXPECT_LT(judge(census).diagnosis.text().size(), 1'000'000U);
  Straggling straggling;
  const auto now = Clock::now();
  straggling.observe(0, report.pace, now);
  straggling.observe(1, {.steps = 4}, now);
  if (const auto pace = straggling.summary(now + std::chrono::seconds(20))) (void)straggling.judge({*pace, *pace}, now);
  std::string bytes;
  Json::to_cbor(to_json(report), bytes);
  EXPECT_EQ(report_from_json(Json::from_cbor(bytes)).groups.size(), report.groups.size());
}

// A rank that has gone wild may leave anything in its memory.
TEST(Board, AnyBytesAreReadWithoutHarm) {
  constexpr uint64_t kSeed = 11;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  const auto memory = BoardMemory::create();
  std::vector<uint64_t> words(sizeof(Board) / sizeof(uint64_t));
  for (uint64_t& word : words) word = random();
  std::memcpy(static_cast<void*>(&memory->board()), words.data(), words.size() * sizeof(uint64_t));
  for (int board = 0; board < 2000; ++board) {
    // New bytes for a random range, all of one kind for some: zeros, ones, small numbers.
    const size_t from = random() % (random() % 2 == 0 ? 20'000 : words.size()),
                 count = random() % 4096;  // often the head
    const uint64_t kind = random() % 6;
    for (size_t i = from; i < std::min(words.size(), from + count); ++i) {
      words[i] = kind == 0 ? 0 : kind == 1 ? ~uint64_t{0} : kind == 2 ? random() % 8 : random();
    }
    std::memcpy(reinterpret_cast<uint64_t*>(&memory->board()) + from, words.data() + from,
                std::min(count, words.size() - from) * sizeof(uint64_t));
    memory->board().num_groups.store(random() % 4 == 0 ? ~uint32_t{0} : static_cast<uint32_t>(random() % 4));
    RankReport report = read_board(memory->board(), board % 20 == 0 ? FlightRing::kSize : 16);
    report.rank = 0;  // the agent knows better
    if (board % 4 == 0) use(report);
  }
}

TEST(Board, ACountAtItsEndIsBounded) {
  const auto memory = BoardMemory::create();
  Group& group = memory->board().groups[0];
  memory->board().num_groups.store(1);
  std::memset(static_cast<void*>(&group.ring), 0xFF, sizeof group.ring);
  use(read_board(memory->board(), FlightRing::kSize));
}

// One rank writes as fast as it can, the agent reads: every record is whole, and their order holds.
TEST(Board, IsReadWhileItIsWritten) {
  const auto memory = BoardMemory::create();
  Board& board = memory->board();
  board.num_groups.store(1);
  std::atomic<bool> done{false};
  Worker reader("reader", [&](std::stop_token) {
    while (!done) {
      const RankReport report = read_board(board, 64);
      for (const auto& group : report.groups) {
        uint64_t before = 0;
        for (const auto& record : group.tail) {
          ASSERT_GT(record.seq, before);
          ASSERT_EQ(record.signature.dims[0], static_cast<int64_t>(record.seq));
          ASSERT_EQ(record.label.view(), "call " + std::to_string(record.seq));
          before = record.seq;
        }
      }
    }
  });
  FlightRing& ring = board.groups[0].ring;
  for (int64_t i = 1; i <= 10'000; ++i) {
    const std::array<int64_t, 1> shape{i};
    const uint64_t seq = ring.enter(CallSignature::of(Op::kAllReduce, "f32", shape), "call " + std::to_string(i));
    board.groups[0].waiting_since_ns.store(steady_ns());
    board.groups[0].waiting_seq.store(seq);
    board.place.write({.detail = FixedText<192>("here"), .since_ns = i});
    ring.set_state(seq, CallState::kDone);
  }
  done = true;
  reader.join();
}

}  // namespace
}  // namespace lockstep
