#include "lockstep/tasks/config_file.h"

#include <filesystem>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/base/yaml_file.h"
#include "lockstep/cli/test_refusal.h"
#include "lockstep/tasks/stage_record.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

using Words = std::vector<std::string>;

class ConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::path(testing::TempDir()) /
           ("config_file_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  std::string file(const std::string& name, const std::string& text) {
    write_text(dir_ / name, text);
    return (dir_ / name).string();
  }
  std::string refused(const std::string& text, Words rest = {}) {
    rest.insert(rest.begin(), file("flags.yaml", text));
    return refusal([&] { expand_config_file(rest); });
  }
  fs::path dir_;
};

TEST_F(ConfigFile, YamlAndJsonGiveTheSameWords) {
  const std::string yaml = file("a.yaml",
                                "model: m\ndataset: [a.jsonl, b.jsonl]\nlearning_rate: 1e-5\nfreeze_vit: false\n"
                                "system: \"0\"  # quoted: text\nmax_length:\nENV:\n  MAX_PIXELS: 100\n");
  const std::string json = file("a.json", R"({"model": "m", "dataset": ["a.jsonl", "b.jsonl"], "learning_rate": 1e-5,
                                            "freeze_vit": false, "system": "0", "max_length": null, "ENV": {"MAX_PIXELS": 100}})");
  const Words expected = {
      "--model", "m",        "--dataset", "a.jsonl", "b.jsonl", "--learning_rate", "1e-05", "--freeze_vit",
      "false",   "--system", "0",         "--seed",  "3"};
  for (const auto& path : {yaml, json}) {
    const Expanded out = expand_config_file({path, "--seed", "3"});
    EXPECT_EQ(out.args, expected) << path;
    EXPECT_EQ(out.variables.at("MAX_PIXELS"), "100");
    EXPECT_FALSE(out.staged);
  }
}

TEST_F(ConfigFile, MapsAreMergedAsYamlHasIt) {
  const Json read = read_yaml(file("m.yaml",
                                   "a: &a {x: 1, y: 2}\nb: &b {x: 3, z: 4}\none: {<<: *a, y: 5}\n"
                                   "both: {y: 6, <<: [*b, *a]}\nquoted: {\"<<\": 1}\n"));
  EXPECT_EQ(read.at("one").dump(), R"({"y":5,"x":1})");
  EXPECT_EQ(read.at("both").dump(), R"({"y":6,"x":3,"z":4})");
  EXPECT_EQ(read.at("quoted").dump(), R"({"<<":1})");
  EXPECT_EQ(expand_config_file({file("f.yaml", "<<: {model: m, seed: 1}\nseed: 2\n")}).args,
            (Words{"--seed", "2", "--model", "m"}));
  EXPECT_NE(refused("model: m\n<<: 3\n").find("flags.yaml:2:1: expected a map, or a list of maps, to merge"),
            std::string::npos);
}

TEST_F(ConfigFile, TheCommandLineWins) {
  const std::string path = file("a.yml", "model: m\nseed: 1\n");
  EXPECT_EQ(expand_config_file({path, "--seed=2"}).args, (Words{"--model", "m", "--seed=2"}));
  EXPECT_EQ(expand_config_file({"--seed=2", "--config", path}).args, (Words{"--model", "m", "--seed=2"}));
  EXPECT_EQ(expand_config_file({"--config", "x"}).args, (Words{"--config", "x"}));
  EXPECT_EQ(expand_config_file({"--seed", "2"}).args, (Words{"--seed", "2"}));
  EXPECT_EQ(expand_config_file({"folder"}).args, Words{"folder"}) << "a word that is no file of flags";
}

TEST_F(ConfigFile, BrokenFilesAreNamedWithTheirPlace) {
  EXPECT_NE(refused("model: m\n  seed: 1\n").find("flags.yaml:2:"), std::string::npos);
  EXPECT_NE(refused("model: m\nmodel: n\n").find("flags.yaml:2:1: the key \"model\" stands twice"), std::string::npos);
  EXPECT_NE(refused("[a]: m\n").find("expected a key of text"), std::string::npos);
  EXPECT_NE(refused("- a\n").find("expected a map of flags, found array"), std::string::npos);
  EXPECT_NE(refused("model: m\n---\nseed: 1\n").find("flags.yaml:3:1: expected one document, found another"),
            std::string::npos);
  EXPECT_EQ(expand_config_file({file("a.yaml", "---\nmodel: m\n---\n")}).args, (Words{"--model", "m"}));
  EXPECT_NE(refusal([] { expand_config_file({"absent.yaml"}); }).find("found no such file"), std::string::npos);
}

TEST_F(ConfigFile, StagesHaveTheFlagsOfAllAndTheirOwn) {
  const std::string path = file("s.yaml",
                                "model: m\noutput_dir: out\nlearning_rate: 0.001\nsave_steps: 4\nstages:\n"
                                "  - {name: projector, train: projector}\n"
                                "  - name: all\n    train: [llm, projector]\n    learning_rate: 0.0001\n");
  const Expanded out = expand_config_file({path, "--save_steps", "2", "--resume_from_checkpoint=auto", "--nproc", "2"});
  ASSERT_TRUE(out.staged);
  EXPECT_EQ(out.staged->model, "m");
  EXPECT_EQ(out.staged->output_dir, "out");
  EXPECT_EQ(out.staged->resume_from_checkpoint, "auto");
  ASSERT_EQ(out.staged->stages.size(), 2u);
  EXPECT_EQ(out.staged->stages[0].name, "projector");
  EXPECT_EQ(out.staged->stages[0].args, (Words{"--learning_rate", "0.001", "--train", "projector", "--tuner_type",
                                               "full", "--save_steps", "2", "--nproc", "2"}));
  EXPECT_EQ(out.staged->stages[1].args, (Words{"--learning_rate", "0.0001", "--train", "llm", "projector",
                                               "--tuner_type", "full", "--save_steps", "2", "--nproc", "2"}));
}

TEST_F(ConfigFile, TheCommandLineNamesTheModelOfAllStages) {
  const std::string path = file("s.json", R"({"model": "m", "stages": [{"name": "a"}]})");
  const Expanded out = expand_config_file({path, "--model", "other", "--output_dir", "out"});
  EXPECT_EQ(out.staged->model, "other");
  EXPECT_EQ(out.staged->output_dir, "out");
  EXPECT_EQ(out.staged->stages[0].args, (Words{"--tuner_type", "full"}));
}

TEST_F(ConfigFile, StagesThatCannotBeAreRefused) {
  EXPECT_NE(refused("stages: projector\n").find("\"stages\": expected a list of stages"), std::string::npos);
  EXPECT_NE(refused("stages: [projector]\n").find("stage 1: expected a map of flags"), std::string::npos);
  EXPECT_NE(refused("stages: [{train: llm}]\n").find("stage 1: expected a name"), std::string::npos);
  EXPECT_NE(refused("stages: [{name: a/b}]\n").find("stage 1: expected a name"), std::string::npos);
  EXPECT_NE(refused("stages: [{name: a}, {name: a}]\n").find("stage 2: the name a stands twice"), std::string::npos);
  EXPECT_NE(refused("stages: [{name: a, model: m}]\n").find("stage 1 (a): model belongs to all stages"),
            std::string::npos);
}

class Record : public ConfigFile {
 protected:
  std::string begin(std::vector<StageEntry> wanted, const std::string& resume) {
    return refusal([&] { StageRecord(dir_ / "out").begin(std::move(wanted), resume); });
  }
  /// As finish leaves it, with a folder for the checkpoint.
  void finished(const std::string& name, const Words& args) {
    fs::create_directories(dir_ / "out" / ("1-" + name) / "checkpoint-4");
    write_json(dir_ / "out" / "stages.json",
               {{"stages",
                 {{{"name", name}, {"args", args}, {"finished", true}, {"checkpoint", "1-" + name + "/checkpoint-4"}},
                  {{"name", "b"}, {"args", Words{}}, {"finished", false}, {"checkpoint", ""}}}}});
  }
};

TEST_F(Record, BeginsAfreshOrGoesOn) {
  EXPECT_EQ(begin({{.name = "a"}, {.name = "b"}}, ""), "none");
  EXPECT_NE(begin({{.name = "a"}}, "").find("holds a run in stages already"), std::string::npos);
  StageRecord record(dir_ / "out");
  record.begin({{.name = "a"}, {.name = "c"}}, "auto");
  EXPECT_TRUE(record.resumes());
  EXPECT_FALSE(record.stages()[0].finished);
  EXPECT_EQ(record.folder(1), dir_ / "out" / "2-c") << "what is not finished may change";
}

TEST_F(Record, KeepsWhatIsFinished) {
  finished("a", {"--seed", "1"});
  StageRecord record(dir_ / "out");
  record.begin({{.name = "a", .args = {"--seed", "1"}}, {.name = "b", .args = {"--seed", "2"}}}, "true");
  EXPECT_TRUE(record.stages()[0].finished);
  EXPECT_EQ(record.stages()[0].checkpoint, "1-a/checkpoint-4");
  EXPECT_FALSE(record.stages()[1].finished);
}

TEST_F(Record, TellsOfFlagsThatHaveChangedSince) {
  finished("a", {"--seed", "1", "--train", "llm", "projector", "--nproc=2"});
  StageRecord record(dir_ / "out");
  record.begin({{.name = "a", .args = {"--seed=2", "--train", "llm", "projector", "--max_steps", "3"}}, {.name = "b"}},
               "auto");
  ASSERT_EQ(record.notices().size(), 1u);
  EXPECT_NE(record.notices()[0].find("(--nproc 2 is gone, --seed 1 is now 2, --max_steps 3 is new)"), std::string::npos)
      << record.notices()[0];
  EXPECT_EQ(record.stages()[0].args[1], "1") << "the record keeps what it was run with";
}

TEST_F(Record, RefusesAnotherPast) {
  EXPECT_NE(begin({{.name = "a"}}, "true").find("holds no run in stages"), std::string::npos);
  EXPECT_NE(begin({{.name = "a"}}, "out/checkpoint-3").find("expected true or auto"), std::string::npos);
  finished("a", {"--seed", "1"});
  EXPECT_NE(begin({{.name = "b"}}, "auto").find("is finished, and the file has b in its place"), std::string::npos);
  EXPECT_NE(begin({}, "auto").find("the file has nothing in its place"), std::string::npos);
  fs::remove_all(dir_ / "out" / "1-a" / "checkpoint-4");
  try {
    StageRecord(dir_ / "out").begin({{.name = "a", .args = {"--seed", "1"}}}, "auto");
    FAIL() << "expected an error";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    EXPECT_NE(std::string(e.what()).find("1-a/checkpoint-4, found no such folder"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
