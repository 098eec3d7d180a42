#include "lockstep/watch/event_lines.h"

#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/process.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

TEST(EventLines, AreAnObjectForEachThingThatIsSaid) {
  Pipe pipe;
  {
    EventLines lines(pipe.write.get());
    lines.on(StepDone{.step = 3, .max_steps = 10, .loss = 2.5});
    lines.on(Notice{"two\nlines"});
    lines.on(RunStarted{.verb = "sft", .max_steps = 10});
    lines.result({{"steps", 3}});
    lines.error({ExitCode::kData, std::string(5000, 'x'), "mend it", false}, {"row 3"});
  }
  pipe.write.close();
  std::vector<Json> said;
  for (const auto& line : split(read_all(pipe.read.get()), '\n')) {
    if (!line.empty()) said.push_back(Json::parse(line));
  }
  ASSERT_EQ(said.size(), 5U);
  EXPECT_EQ(said[0]["event"], "step");
  EXPECT_EQ(said[0]["loss"], 2.5);
  EXPECT_TRUE(said[0]["token_acc"].is_null());  // it was not measured
  EXPECT_NE(said[0]["text"].get<std::string>().find("step  3/10"), std::string::npos);
  EXPECT_EQ(said[1]["message"], "two\nlines");
  EXPECT_EQ(said[2]["event"], "started");
  EXPECT_EQ(said[3]["result"]["steps"], 3);
  EXPECT_EQ(said[4]["code"], 3);
  EXPECT_EQ(said[4]["frames"], Json({"row 3"}));
  EXPECT_LT(said[4]["message"].get<std::string>().size(), 4000U);  // other ranks may write as well
}

TEST(EventLines, EndNothingWhenTheirReaderHasGone) {
  ASSERT_NE(std::signal(SIGPIPE, SIG_IGN), SIG_ERR);
  Pipe pipe;
  pipe.read.close();
  EventLines lines(pipe.write.get());
  lines.on(Notice{"nobody hears it"});
  lines.result({});
}

TEST(EventLines, StayWithTheirProgramWhenItIsToldSo) {
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.write.get(), F_SETFD, 0), 0);
  ::setenv("LOCKSTEP_EVENTS", "9", /*overwrite=*/1);
  EventLines(pipe.write.get()).keep_to_self();
  EXPECT_EQ(std::getenv("LOCKSTEP_EVENTS"), nullptr);
  EXPECT_EQ(::fcntl(pipe.write.get(), F_GETFD), FD_CLOEXEC);
}

}  // namespace
}  // namespace lockstep
