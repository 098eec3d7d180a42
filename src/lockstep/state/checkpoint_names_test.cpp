#include "lockstep/state/checkpoint_names.h"

#include <algorithm>
#include <array>
#include <fstream>

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/state/checkpoint_manifest.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class CheckpointNames : public InTestFolder {
 protected:
  /// A whole one that holds `text`.
  fs::path put(const std::string& name, const std::string& text) const {
    fs::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "text") << text;
    seal_folder(folder_ / name, 4, describe_folder(folder_ / name));
    return folder_ / name;
  }
  static std::string text_of(const fs::path& checkpoint) {
    std::string text;
    std::ifstream(checkpoint / "text") >> text;
    return text;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
};

/// Its files cannot be removed while this lives. Root may all: this thread gives that up meanwhile.
class Held {
 public:
  explicit Held(const fs::path& folder) : parent_(folder.parent_path()) {
    fs::permissions(folder, fs::perms(0555));
    heed_permissions(true);
  }
  ~Held() {
    heed_permissions(false);
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(parent_)) {
      if (entry.is_directory()) fs::permissions(entry.path(), fs::perms::owner_all, ignored);
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  static void heed_permissions(bool heed) {
    constexpr uint32_t kMayAll = (1U << CAP_DAC_OVERRIDE) | (1U << CAP_DAC_READ_SEARCH);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    std::array<__user_cap_data_struct, 2> sets{};
    ::syscall(SYS_capget, &header, sets.data());
    sets[0].effective = heed ? sets[0].effective & ~kMayAll : sets[0].effective | (sets[0].permitted & kMayAll);
    ::syscall(SYS_capset, &header, sets.data());
  }

  fs::path parent_;
};

TEST_F(CheckpointNames, WhatCannotBeRemovedIsToldAndLosesItsName) {
  const fs::path old = put("checkpoint-4", "old");
  const Held held(old);
  EXPECT_NE(remove_checkpoint(old).find("checkpoint-4.tmp-pruned cannot be removed ("), std::string::npos);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(unnamed_checkpoints(folder_).empty());  // it is whole, and was to go
  const std::vector<std::string> left = remove_leftovers(folder_);
  ASSERT_EQ(left.size(), 1U);
  EXPECT_NE(left[0].find("it keeps its place on the disk until you remove it"), std::string::npos) << left[0];
}

TEST_F(CheckpointNames, WhatAnEarlierRemovalLeftIsNotInTheWay) {
  put("checkpoint-4.tmp-pruned", "older");
  EXPECT_EQ(remove_checkpoint(put("checkpoint-4", "old")), "");
  EXPECT_EQ(names(), std::vector<std::string>{"checkpoint-4.tmp-pruned"});
  EXPECT_TRUE(remove_leftovers(folder_).empty());
  EXPECT_TRUE(names().empty());
}

TEST_F(CheckpointNames, OneThatStandsThereGoesWhereNamesCanBeExchangedAndWhereNot) {
  const fs::path checkpoint = put("checkpoint-4", "old");
  EXPECT_EQ(publish_checkpoint(put("checkpoint-4.tmp-1", "new"), checkpoint), "");
  EXPECT_EQ(text_of(checkpoint), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"checkpoint-4"});
  const fs::path older = take_name_in_turn(put("checkpoint-4.tmp-1", "newer"), checkpoint);
  EXPECT_EQ(text_of(checkpoint), "newer");
  EXPECT_EQ(older, folder_ / "checkpoint-4.tmp-replaced");
  EXPECT_EQ(text_of(older), "new");
}

TEST_F(CheckpointNames, OneThatCannotTakeItsNameLeavesTheOlderOne) {
  const fs::path checkpoint = put("checkpoint-4", "old");
  EXPECT_THROW(take_name_in_turn(folder_ / "checkpoint-4.tmp-1", checkpoint), UserError);  // there is none
  EXPECT_EQ(text_of(checkpoint), "old");
}

TEST_F(CheckpointNames, WhatAKillLeftWholeBetweenTwoNamesIsFoundAgainTheNewerFirst) {
  put("checkpoint-4.tmp-replaced", "old");
  put("checkpoint-4.tmp-77", "new");
  put("checkpoint-6.tmp-77", "cut");
  fs::resize_file(folder_ / "checkpoint-6.tmp-77" / "text", 1);
  put("checkpoint-8.tmp-pruned", "removed");
  name_checkpoints(folder_);
  EXPECT_EQ(text_of(folder_ / "checkpoint-4"), "new");
  EXPECT_EQ(checkpoints_in(folder_).size(), 1U);
  EXPECT_TRUE(remove_leftovers(folder_).empty());
  EXPECT_EQ(names(), std::vector<std::string>{"checkpoint-4"});
}

}  // namespace
}  // namespace lockstep
