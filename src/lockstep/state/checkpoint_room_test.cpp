#include "lockstep/state/checkpoint_room.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(CheckpointRoom, KeepsOneFewerThanFit) {
  const SaveOptions all{.output_dir = "out"};
  EXPECT_EQ(room_hint(all, /*whole=*/3, /*bytes=*/8 * kMiB, /*found_free=*/5 * kMiB),
            "keep fewer checkpoints in out, --save_total_limit 2, or free 3.00 MiB there; the same command with "
            "--resume_from_checkpoint auto goes on");
  const SaveOptions limited{.output_dir = "out", .save_total_limit = 2};
  EXPECT_EQ(room_hint(limited, 3, 8 * kMiB, 5 * kMiB).find("--save_total_limit"), std::string::npos);  // it keeps two
}

TEST(CheckpointRoom, LeavesTheOptimizerOutWhereNotEvenTwoFit) {
  const SaveOptions whole{.output_dir = "out"}, model{.output_dir = "out", .save_only_model = true};
  EXPECT_NE(room_hint(whole, 1, 8 * kMiB, kMiB).find("--save_only_model true, or free 7.00 MiB more"),
            std::string::npos);
  EXPECT_NE(room_hint(whole, 0, 0, kMiB).find("out had 1.00 MiB free"), std::string::npos);
  EXPECT_EQ(room_hint(model, 1, 8 * kMiB, kMiB).find("--save_only_model"), std::string::npos);
}

TEST(CheckpointRoom, OtherErrorsStayAsTheyAre) {
  const auto hint_of = [](const std::string& message) -> std::string {
    try {
      say_what_makes_room({.output_dir = "."}, "./nowhere", [&] { throw checkpoint_error(message, "as before"); });
    } catch (const UserError& error) {
      return error.hint();
    }
    return "nothing was thrown";
  };
  EXPECT_EQ(hint_of("weights: cannot be written (Permission denied)"), "as before");
  EXPECT_NE(hint_of("weights: cannot be written (No space left on device)"), "as before");
}

}  // namespace
}  // namespace lockstep
