#include "lockstep/base/program.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"

namespace lockstep {
namespace {

constexpr const char* kSearchPath = "/usr/bin:/bin";

class FindProgram : public InTestFolder {
 protected:
  std::string shell(const std::string& body) const { return shell_script("metric.sh", body); }
};

TEST_F(FindProgram, TakesArguments) {
  const std::string path = shell("true");
  const Program program = find_program("--metric", path + " --lang 'zh CN' \"a b\" c\\ d ''", "");
  EXPECT_EQ(program.argv, (std::vector<std::string>{path, "--lang", "zh CN", "a b", "c d", ""}));
  EXPECT_EQ(program.stem(), "metric");
  EXPECT_EQ(find_program("--metric", "cat", kSearchPath).argv, std::vector<std::string>{"cat"});
  EXPECT_TRUE(find_program("--metric", "cat", kSearchPath).path.ends_with("/cat"));
  EXPECT_EQ(find_program("--metric", script("with blank.sh", "#!/bin/sh\n"), "").stem(), "with blank");
}

TEST_F(FindProgram, LooksAlongTheSearchPathAlone) {
  script("plain", "print(1)\n", /*executable=*/false);
  const std::string path = shell("true");
  EXPECT_EQ(find_program("--metric", "metric.sh", "/nowhere::" + folder_.string()).path, path);
  EXPECT_THROW(find_program("--metric", "metric.sh", "/nowhere"), UserError);
  EXPECT_THROW(find_program("--metric", "metric.sh", ""), UserError);
  EXPECT_THROW(find_program("--metric", "plain", folder_.string()), UserError) << "no program stands there";
}

TEST(LastLines, LeaveOutWhatABarHasOverwritten) {
  EXPECT_EQ(last_lines("one\n\n 10%\r 50%\r100%\r\ntwo\n"), "\n    one\n    100%\n    two");
  EXPECT_EQ(last_lines("\n"), "");
}

}  // namespace
}  // namespace lockstep
