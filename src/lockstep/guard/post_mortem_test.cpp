#include "lockstep/guard/post_mortem.h"

#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/guard/diagnosis.h"
#include "lockstep/guard/test_reports.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class PostMortemFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "guard_post_mortem";
    fs::remove_all(folder_);
    for (int rank = 0; rank < 3; ++rank) {
      ranks_.push_back(running_rank(rank, 3));
      add_calls(ranks_.back(), training_calls(4));
    }
    ranks_[1].groups[0].waiting_seq = 24;
    ranks_[1].groups[0].waiting_seconds = 3.25;
    ranks_[2].process = {.state = ProcessState::kGone};
    ranks_[2].end = {.known = true, .signal = 9};
    ranks_[2].gone_seconds = 0.5;
    ranks_[2].last_words = {
        .exit_code = 5, .at_ns = 7, .message = "out of \"memory\"\n", .hint = "less", .place = "save"};
    ranks_[2].stack = "#0 write";
    ranks_[2].facts = R"({"version": "1"})";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write() { return write_post_mortem(folder_.string(), ranks_, to_json(diagnosis_)); }

  void put(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

  /// The error that reading ends in; it must be one that a person can mend.
  std::string error() const {
    try {
      read_post_mortem(folder_);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      return error.message();
    }
    return {};
  }

  fs::path folder_;
  std::vector<RankReport> ranks_;
  Diagnosis diagnosis_{.fault = Fault::kDeath,
                       .culprits = {2},
                       .headline = "rank 2 was killed (SIGKILL)",
                       .group = "data",
                       .seq = 24,
                       .why = "somebody sent the signal",
                       .exit_code = 6};
};

TEST_F(PostMortemFolder, ReadsBackWhatWasWritten) {
  ASSERT_EQ(write(), folder_.string());
  const PostMortem found = read_post_mortem(folder_);
  EXPECT_EQ(found.folder, folder_);
  EXPECT_EQ(found.text, diagnosis_.text());
  EXPECT_EQ(read_text(folder_ / "diagnosis.txt"), diagnosis_.text() + "\n");
  EXPECT_EQ(Json::parse(found.diagnosis_json), to_json(diagnosis_));
  ASSERT_EQ(found.ranks.size(), 3U);
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(to_json(found.ranks[rank]), to_json(ranks_[rank])) << rank;
  EXPECT_EQ(found.ranks[2].last_words->message, "out of \"memory\"\n");
  ASSERT_NE(found.ranks[1].waiting(), nullptr);
  EXPECT_EQ(found.ranks[1].waiting()->find(24)->label.view(), "batch size");
}

TEST_F(PostMortemFolder, IsSortedByRankAndIgnoresOtherFiles) {
  std::swap(ranks_[0], ranks_[2]);
  ranks_[1].rank = 100'000;
  write();
  put("timeline.html", "<html>");
  put("rank_00001.json.tmp-12-ab", "{");
  const PostMortem found = read_post_mortem(folder_);
  ASSERT_EQ(found.ranks.size(), 3U);
  EXPECT_EQ(found.ranks[0].rank, 0);
  EXPECT_EQ(found.ranks[1].rank, 2);
  EXPECT_EQ(found.ranks[2].rank, 100'000);
}

TEST_F(PostMortemFolder, IsReadWithoutRanksToo) {
  ranks_.clear();
  write();
  EXPECT_TRUE(read_post_mortem(folder_).ranks.empty());
}

TEST_F(PostMortemFolder, NamesWhatIsMissing) {
  EXPECT_NE(error().find("guard_post_mortem: expected a post-mortem folder"), std::string::npos) << error();
  write();
  fs::remove(folder_ / "diagnosis.json");
  EXPECT_NE(error().find("diagnosis.json"), std::string::npos) << error();
}

TEST_F(PostMortemFolder, NamesTheFileThatIsTruncatedOrGarbage) {
  for (const char* name : {"diagnosis.json", "rank_00001.json"}) {
    for (const std::string& text : {std::string(), std::string("{"), std::string("[]"), std::string("null"),
                                    std::string("{\"text\": 3}"), std::string("\xFF\xFE\x00garbage", 10)}) {
      write();
      put(name, text);
      EXPECT_NE(error().find(name), std::string::npos) << name << " holding " << text << ": " << error();
    }
  }
}

TEST_F(PostMortemFolder, EndsInAnErrorOrAReportWhateverByteIsLostOrChanged) {
  write();
  const std::string whole = read_text(folder_ / "rank_00002.json");
  std::mt19937 random(20261121);
  for (int i = 0; i < 400; ++i) {
    std::string text = whole;
    const size_t at = random() % text.size();
    if (i % 2 == 0) {
      text.resize(at);
    } else {
      text[at] = static_cast<char>(random());
    }
    put("rank_00002.json", text);
    const std::string message = error();
    if (message.empty()) {
      EXPECT_TRUE(i % 2 == 1 || at + 2 >= whole.size()) << "cut at " << at;
    } else {
      EXPECT_NE(message.find("rank_00002.json"), std::string::npos) << message;
    }
  }
}

TEST_F(PostMortemFolder, IsNotWrittenWhereItCannotBe) {
  EXPECT_EQ(write_post_mortem("", ranks_, to_json(diagnosis_)), "");
  fs::create_directories(folder_);
  put("file", "");
  EXPECT_EQ(write_post_mortem((folder_ / "file" / "below").string(), ranks_, to_json(diagnosis_)), "");
}

TEST_F(PostMortemFolder, GetsANameThatIsNotTakenYet) {
  EXPECT_EQ(post_mortem_folder(ranks_), "");
  ranks_[1].post_mortem_dir = folder_.string();
  EXPECT_EQ(post_mortem_folder(ranks_), (folder_ / "post_mortem").string());
  fs::create_directories(folder_ / "post_mortem");
  EXPECT_EQ(post_mortem_folder(ranks_), (folder_ / "post_mortem-2").string());
  fs::create_directories(folder_ / "post_mortem-2");
  EXPECT_EQ(post_mortem_folder(ranks_), (folder_ / "post_mortem-3").string());
}

}  // namespace
}  // namespace lockstep
