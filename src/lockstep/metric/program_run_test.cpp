#include "lockstep/metric/program_run.h"

#include <cstdlib>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/metric/program_values.h"

namespace lockstep {
namespace {

constexpr const char* kSearchPath = "/usr/bin:/bin";

class Programs : public InTestFolder {
 protected:
  std::string shell(const std::string& body) const { return shell_script("metric.sh", body); }

  ProgramResult run(const std::string& text, const std::string& input = "rows\n",
                    Clock::duration patience = std::chrono::seconds(60)) const {
    InputFile rows;
    rows.write(input);
    ProgramRun running(find_program("--metric", text, kSearchPath), rows, patience);
    while (!running.advance(std::chrono::seconds(1))) {
    }
    return running.result();
  }
  /// The error's message and hint when this program measures.
  std::string complaint(const std::string& text, Clock::duration patience = std::chrono::seconds(60)) const {
    try {
      const Program program = find_program("--metric", text, kSearchPath);
      printed_values(program, run(text, "rows\n", patience));
    } catch (const UserError& error) {
      return error.message() + " | " + error.hint();
    }
    return "no error";
  }
};

testing::AssertionResult has(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) {
    if (text.find(part) == std::string::npos)
      return testing::AssertionFailure() << "no \"" << part << "\" in\n" << text;
  }
  return testing::AssertionSuccess();
}

TEST_F(Programs, ThatCannotBeStartedAreNamedWithTheCure) {
  const std::string path = script("plain.py", "print(1)\n", /*executable=*/false);
  EXPECT_TRUE(has(complaint(path), {"--metric " + path, "is not executable", "chmod +x " + path}));
  EXPECT_TRUE(has(complaint((folder_ / "plan.py").string()), {"found no file", "did you mean", "plain.py"}));
  EXPECT_TRUE(has(complaint(folder_.string()), {"found a folder"}));
  EXPECT_TRUE(has(complaint("'x"), {"quote ' does not end"}));
  EXPECT_TRUE(has(complaint(""), {"found no word"}));
  EXPECT_TRUE(has(complaint(script("bare", "print(1)\n")), {"cannot be executed", "#! line"}));
  EXPECT_TRUE(has(complaint(script("lost", "#!/no/such/python\n")), {"cannot be executed", "interpreter"}));
}

TEST_F(Programs, GetTheirInputAndGiveTheirOutput) {
  EXPECT_EQ(run("cat", "one\ntwo\n").output, "one\ntwo\n");
  const ProgramResult result = run(shell("echo out; echo err >&2; exit 3"));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST_F(Programs, NeverBlockHoweverTheyReadAndWrite) {
  const std::string much(4 << 20, 'x');
  EXPECT_EQ(run("cat", much).output.size(), much.size());                // writes while it reads
  EXPECT_EQ(run(shell("exec 0<&-; echo done"), much).output, "done\n");  // does not read
  EXPECT_EQ(run(shell("head -c 3000000 /dev/zero >&2; echo done")).output, "done\n");
  EXPECT_EQ(run(shell("exec >&- 2>&-; sleep 0.1; exit 5")).exit_code, 5);  // closes its outputs and goes on
  EXPECT_EQ(run(shell("sleep 60 & echo done")).output, "done\n");          // leaves a process behind with the pipes
}

TEST_F(Programs, EachReadItsInputFromTheStart) {
  InputFile rows;
  rows.write("one\n");
  for (int i = 0; i < 2; ++i) {
    ProgramRun running(find_program("--metric", "cat", kSearchPath), rows, std::chrono::seconds(60));
    while (!running.advance(std::chrono::seconds(1))) {
    }
    EXPECT_EQ(running.result().output, "one\n");
  }
}

TEST_F(Programs, DoNotSeeWhatALauncherHasSet) {
  ::setenv("WORLD_SIZE", "4", 1);
  ::setenv("SLURM_NTASKS", "4", 1);
  EXPECT_EQ(run(shell("echo \"[$WORLD_SIZE$SLURM_NTASKS]\"")).output, "[]\n");
  ::unsetenv("WORLD_SIZE");
  ::unsetenv("SLURM_NTASKS");
}

TEST_F(Programs, ThatFailSayHow) {
  EXPECT_TRUE(
      has(complaint(shell("echo 'KeyError: page' >&2; exit 1")), {"exit code 1", "KeyError: page", "--output"}));
  EXPECT_TRUE(has(complaint(shell("exit 2")), {"exit code 2", "nothing to standard error"}));
  EXPECT_TRUE(has(complaint(shell("kill -9 $$")), {"signal 9", "Killed"}));
  EXPECT_TRUE(has(complaint(shell("sleep 60"), Milliseconds(100)), {"still running after", "--metric_timeout"}));
  EXPECT_TRUE(has(complaint(shell("sh -c 'sleep 60'; true"), Milliseconds(100)), {"still running after"}));
  EXPECT_TRUE(has(complaint(shell("yes")), {"no end", "killed"}));
}

TEST_F(Programs, MustPrintOneObject) {
  EXPECT_TRUE(has(complaint(shell("echo loading; echo '{}'")), {"expected a JSON object", R"("loading\n{}\n")"}));
  EXPECT_TRUE(has(complaint(shell("echo '[1]'")), {R"("[1]\n")"}));
  EXPECT_TRUE(has(complaint(shell("echo '{\"a\": NaN}'")), {"NaN is not JSON"}));
  EXPECT_TRUE(has(complaint(shell("echo word >&2")), {"found nothing", "word"}));
  EXPECT_TRUE(has(complaint(shell("head -c 500 /dev/zero")), {R"(\u0000)", "..."}));
  const Program program = find_program("--metric", shell(R"(echo '{"b": 1, "a": {"x": [1, null]}}')"), "");
  EXPECT_EQ(printed_values(program, run(program.text)).dump(), R"({"b":1,"a":{"x":[1,null]}})");
}

TEST(ProgramValues, NamesThatMeetGetTheProgramInFront) {
  const Json a = {{"accuracy", 0.5}, {"loss", 1}}, b = {{"accuracy", 0.25}, {"own", "text"}};
  EXPECT_EQ(merged_values({{"one", a}, {"two", b}}, {"loss"}).dump(),
            R"({"one.accuracy":0.5,"one.loss":1,"two.accuracy":0.25,"own":"text"})");
  EXPECT_EQ(merged_values({{"one", a}, {"one", a}}, {}).dump(),
            R"({"one.accuracy":0.5,"one.loss":1,"one.accuracy.2":0.5,"one.loss.2":1})");
  EXPECT_EQ(merged_values({}, {"loss"}).dump(), "{}");
}

}  // namespace
}  // namespace lockstep
