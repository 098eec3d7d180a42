#include "lockstep/cli/flags.h"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/cli/test_refusal.h"

namespace lockstep {
namespace {

struct Values {
  std::string dir;
  int64_t seed = 1;
  bool flag = true;
};

std::string error_of(const std::vector<std::string>& args) {
  Values values;
  CLI::App app("a verb", "lockstep verb");
  app.add_option("--output_dir", values.dir)->required();
  app.add_option("--seed", values.seed)->check(seed_number());
  app.add_option("--flag", values.flag);
  try {
    (void)parse_flags(app, args);
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kUsage);
    return e.what();
  }
  return "no error";
}

TEST(FlagsTest, KeepsTheWordsOfWhatMeansMoreThanItsNumber) {
  // As args.json, which is given again: a part of all steps must not come back as a count, nor auto as a number.
  const auto kept = [](const std::vector<std::string>& words) {
    CLI::App app("a verb", "lockstep verb");
    std::string read;
    add_word_flag(app, "--steps,--every", "N|PART", "500", "", [&](const std::string& text) {
      read = text;
      return text == "many" ? std::string("expected a number, found \"many\"") : std::string();
    });
    EXPECT_TRUE(parse_flags(app, words));
    EXPECT_EQ(read, words.empty() ? "" : words[1]);
    return flags_as_json(app).at("steps");
  };
  EXPECT_EQ(kept({}), Json(500));
  EXPECT_EQ(kept({"--every", "0.25"}), Json(0.25));
  EXPECT_EQ(kept({"--steps", "auto"}), Json("auto"));
  EXPECT_NE(refusal([&] {
              kept({"--steps", "many"});
            }).find("--steps: expected a number, found \"many\""),
            std::string::npos);
}

TEST(FlagsTest, ReadsValuesInBothSpellingsAndBooleansAsValues) {
  Values values;
  CLI::App app("a verb", "lockstep verb");
  app.add_option("--output_dir", values.dir)->required();
  app.add_option("--seed", values.seed)->check(seed_number());
  app.add_option("--flag", values.flag);
  EXPECT_TRUE(parse_flags(app, {"--output_dir", "x", "--seed=7", "--flag", "false"}));
  EXPECT_EQ(values.dir, "x");
  EXPECT_EQ(values.seed, 7);
  EXPECT_FALSE(values.flag);
}

TEST(FlagsTest, AnUnknownFlagIsMetWithTheNearest) {
  EXPECT_EQ(error_of({"--output_dir", "x", "--sed", "3"}),
            "unknown flag --sed; hint: did you mean --seed? lockstep verb --help all lists all");
  EXPECT_EQ(error_of({"--output_dir", "x", "--zzzzzz=3"}),
            "unknown flag --zzzzzz; hint: lockstep verb --help all lists all");
}

TEST(FlagsTest, WrongValuesMissingFlagsAndStrayWordsAreUsageErrors) {
  EXPECT_NE(error_of({"--output_dir", "x", "--seed", "abc"}).find("--seed"), std::string::npos);
  EXPECT_NE(error_of({"--seed", "1"}).find("--output_dir is required"), std::string::npos);
  EXPECT_EQ(error_of({"--output_dir", "x", "stray"}),
            "\"stray\" is not expected here; hint: lockstep verb --help all lists all");
}

struct Asked {
  bool goes_on;
  std::string printed;
};

Asked ask_help(const std::vector<std::string>& args) {
  CLI::App app("a verb", "lockstep verb");
  std::string model, rare;
  app.add_option("--model", model)->required();
  app.add_option("--rare,--seldom", rare);
  testing::internal::CaptureStdout();
  const bool goes_on = parse_flags(app, args, {"model"});
  return {goes_on, testing::internal::GetCapturedStdout()};
}

TEST(Flags, HelpShowsTheUsualOnesAndAllOnRequest) {
  const Asked some = ask_help({"--help"});
  EXPECT_FALSE(some.goes_on);
  EXPECT_NE(some.printed.find("--model"), std::string::npos);
  EXPECT_EQ(some.printed.find("--rare"), std::string::npos);
  EXPECT_NE(some.printed.find("1 more flags: lockstep verb --help all"), std::string::npos) << some.printed;
  for (const auto& words : std::vector<std::vector<std::string>>{{"--help", "all"}, {"--help-all"}, {"-h", "all"}}) {
    EXPECT_NE(ask_help(words).printed.find("--rare"), std::string::npos);
  }
}

TEST(Flags, HintsNameNoFlagThatIsOnlyTakenForOthersSake) {
  CLI::App app("a verb", "lockstep verb");
  std::string model, foreign;
  app.add_option("--dataset_num_proc", foreign)->group("");
  app.add_option("--model", model);
  EXPECT_EQ(refusal([&] { parse_flags(app, {"--dataset_num_procs", "3"}); }).find("did you mean"), std::string::npos);
  EXPECT_NE(refusal([&] {
              parse_flags(app, {"--model_name_or_path", "x"});
            }).find("did you mean --model?"),
            std::string::npos);
}

TEST(Flags, ValuesAreMetWithTheWordsThatAreTaken) {
  CLI::App app("a verb", "lockstep verb");
  std::string format;
  bool json = true;
  app.add_option("--format", format)->check(CLI::IsMember({"jsonl", "safetensors"}));
  app.add_flag("--json", json);
  EXPECT_EQ(refusal([&] {
              parse_flags(app, {"--format", "jsonnl"});
            }),
            "--format: expected one of jsonl, safetensors, found \"jsonnl\"; hint: did you mean jsonl?");
  EXPECT_TRUE(parse_flags(app, {"--json", "false", "--format", "jsonl"}));
  EXPECT_FALSE(json);
  EXPECT_TRUE(parse_flags(app, {"--json", "true"}));
  EXPECT_TRUE(json);
}

TEST(Flags, ASlipInARequiredFlagIsNamedAsTheSlip) {
  CLI::App app("", "lockstep verb");
  std::string model;
  app.add_option("--model", model)->required();
  try {
    parse_flags(app, {"--modle", "x"});
    FAIL() << "expected an error";
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean --model?"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
