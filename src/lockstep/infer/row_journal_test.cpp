// The journal against what happens to long runs: kills at any byte, other numbers of ranks, other flags.
#include "lockstep/infer/row_journal.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/testing/ranks.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Journal : public testing::Test {
 protected:
  Journal() : dir_(fs::temp_directory_path() / ("lockstep_journal_" + std::to_string(::getpid()))) {
    fs::remove_all(dir_);
  }
  ~Journal() override { fs::remove_all(dir_); }

  static std::string text_of(int64_t row) {
    return "row " + std::to_string(row) + std::string(static_cast<size_t>(row), '.');
  }

  /// Rows dealt to `world` ranks in turn, but for those that are there; returns how many were there.
  int64_t write(int world, int64_t count) {
    std::atomic<int64_t> there{0};
    run_ranks(world, [&](Rank& rank) {
      RowJournal journal(dir_, identity_, false, rank.control());
      there = journal.size();
      for (int64_t row = rank.id(); row < count; row += world) {
        if (!journal.holds(row)) journal.append(row, text_of(row));
      }
      journal.seal(rank.control());
      EXPECT_EQ(journal.size(), count);
      for (int64_t row = 0; row < count; ++row) EXPECT_EQ(journal.read(row), text_of(row));
    });
    return there;
  }

  fs::path dir_;
  Json identity_{{"model", "abc"}, {"batch_size", 8}};
};

TEST_F(Journal, GoesOnWithAnotherNumberOfRanks) {
  EXPECT_EQ(write(3, 10), 0);
  EXPECT_EQ(write(2, 17), 10);
  EXPECT_EQ(write(1, 17), 17);
}

TEST_F(Journal, ARankWhoseRowsAreNotToBeSeenIsNamed) {
  run_ranks(2, [&](Rank& rank) {
    RowJournal journal(dir_, identity_, false, rank.control());
    journal.append(rank.id(), text_of(rank.id()));
    if (rank.id() == 1) fs::remove(dir_ / "run0-rank1.rows");
    try {
      journal.seal(rank.control());
      ADD_FAILURE() << "a row is missing";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kData);
      EXPECT_NE(std::string(error.what()).find("run0-rank1.rows: rank 1 has kept"), std::string::npos) << error.what();
    }
  });
}

TEST_F(Journal, ARecordThatWasCutAtAnyByteDoesNotCount) {
  write(1, 4);
  const fs::path file = dir_ / "run0-rank0.rows";
  const auto whole = fs::file_size(file);
  const auto last = text_of(3).size() + 32;  // a head of four words
  std::string bytes(whole, '\0');
  std::ifstream(file, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(whole));
  for (auto cut = whole - last; cut < whole; ++cut) {
    for (const auto& entry : fs::directory_iterator(dir_)) {
      if (entry.path().extension() == ".rows") fs::remove(entry.path());
    }
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(cut));
    EXPECT_EQ(write(1, 4), 3) << "cut at " << cut;
    EXPECT_EQ(write(1, 4), 4) << "cut at " << cut;
  }
}

TEST_F(Journal, ABitThatWasTurnedDoesNotCount) {
  write(1, 2);
  std::fstream file(dir_ / "run0-rank0.rows", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('!');
  file.close();
  EXPECT_EQ(write(1, 2), 1);
}

TEST_F(Journal, RefusesTheRowsOfAnotherRunAndSaysWhichFlagDiffers) {
  write(1, 2);
  run_ranks(2, [&](Rank& rank) {
    const Json other{{"model", "abc"}, {"batch_size", 4}};
    try {
      RowJournal journal(dir_, other, false, rank.control());
      FAIL() << "another run's rows were taken";
    } catch (const Error& error) {
      EXPECT_NE(error.message().find("batch_size: 8 there, 4 now"), std::string::npos) << error.message();
    }
    RowJournal journal(dir_, other, true, rank.control());
    EXPECT_EQ(journal.size(), 0);
  });
}

TEST_F(Journal, IsOneRunsAtATime) {
  run_ranks(2, [&](Rank& rank) {
    RowJournal journal(dir_, identity_, false, rank.control());
    journal.append(rank.id(), text_of(rank.id()));
    for (const bool start_over : {false, true}) {
      try {
        const RowJournal other(dir_, identity_, start_over, rank.control());
        FAIL() << "two runs would write there";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::kUsage);
        EXPECT_NE(error.message().find("another run writes in"), std::string::npos) << error.message();
      }
    }
    EXPECT_TRUE(RowJournal::identity_of_idle(dir_).is_null());
    journal.seal(rank.control());
    EXPECT_EQ(journal.size(), 2);
  });
  EXPECT_EQ(RowJournal::identity_of_idle(dir_), identity_);
  EXPECT_EQ(write(1, 2), 2);
  write_text(dir_ / "run.json", "{");
  EXPECT_TRUE(RowJournal::identity_of_idle(dir_).is_null());
}

TEST(IdentityDifference, IsWhatEitherRunAloneSaysToo) {
  const Json plain{{"model", "abc"}}, quantised{{"model", "abc"}, {"quantised", 4}};
  EXPECT_EQ(identity_difference(quantised, plain), "quantised: 4 there, nothing now");
  EXPECT_EQ(identity_difference(plain, quantised), "quantised: nothing there, 4 now");
  EXPECT_EQ(identity_difference(quantised, quantised), "");
  EXPECT_NE(identity_difference(Json(), plain), "");
}

}  // namespace
}  // namespace lockstep
