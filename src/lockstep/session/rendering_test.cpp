// A change of chat template, tokenizer or picture settings is told apart from one that renders the same.
#include "lockstep/session/rendering.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

fs::path fixture(const std::string& family) {
  return fs::path(LOCKSTEP_FIXTURES) / "oracle" / "odd" / family / "checkpoint";
}

Rendering rendered(const std::string& family, const fs::path& dir) {
  return rendering_of(*family_named(family).processor(dir));
}

/// A copy of a fixture that may be edited.
class RenderingTest : public testing::Test {
 protected:
  fs::path copy(const std::string& family) const {
    const fs::path dir = dir_ / family;
    fs::create_directories(dir);
    for (const auto& entry : fs::directory_iterator(fixture(family)))
      if (entry.path().extension() != ".safetensors") fs::copy_file(entry.path(), dir / entry.path().filename());
    return dir;
  }
  static void replace(const fs::path& file, const std::string& text, const std::string& by) {
    std::string all = read_text(file);
    const size_t at = all.find(text);
    ASSERT_NE(at, std::string::npos) << text;
    write_text(file, all.replace(at, text.size(), by));
  }
  std::string refusal(const fs::path& folder, const Rendering& now, Modalities unread = {}) const {
    try {
      require_same_rendering(folder, now, unread);
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
      return e.what();
    }
    return "";
  }
  void SetUp() override { fs::remove_all(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  const fs::path dir_ = fs::path(testing::TempDir()) / "lockstep_rendering";
};

TEST_F(RenderingTest, ARowOfEachMediumThatTheModelReadsAndNoOther) {
  const auto names = [](const Rendering& rendering) {
    std::vector<std::string> all;
    for (const auto& [name, row] : rendering.rows) all.push_back(name);
    return all;
  };
  EXPECT_EQ(names(rendered("qwen2_5_vl", fixture("qwen2_5_vl"))),
            (std::vector<std::string>{"conversation", "image", "system", "video"}));
  EXPECT_EQ(names(rendered("minicpm_o_2_6", fixture("minicpm_o_2_6"))),
            (std::vector<std::string>{"audio", "conversation", "system"}));
  EXPECT_EQ(names(rendered("qwen2", fixture("qwen2"))), (std::vector<std::string>{"conversation", "system"}));
}

TEST_F(RenderingTest, IsTheSameElsewhereAndFromItsText) {
  for (const std::string family : {"qwen2_5_vl", "internvl", "llava", "minicpm_o_2_6", "omnilmm", "qwen2"}) {
    const Rendering here = rendered(family, fixture(family)), there = rendered(family, copy(family));
    EXPECT_EQ(here.hash(), there.hash()) << family;
    EXPECT_EQ(difference(here, there), "") << family;
    const std::string kept = with_rendering("{\"seed\": 7}\n", here);
    const auto read = Rendering::from_json(parse_json(kept, "args.json")["rendering"]);
    ASSERT_TRUE(read) << family;
    EXPECT_EQ(read->rows, here.rows) << family;
    EXPECT_NE(kept.find("\"seed\": 7"), std::string::npos);
  }
}

TEST_F(RenderingTest, AnotherTemplateTokenizerOrPictureIsShownBesideWhatWas) {
  const fs::path dir = copy("qwen2_5_vl");
  const Rendering then = rendered("qwen2_5_vl", dir);
  write_text(dir / "args.json", with_rendering("{}", then));
  EXPECT_EQ(refusal(dir, then), "");
  const auto said = [&](const std::string& file, const std::string& text, const std::string& by) {
    const std::string before = read_text(dir / file);
    replace(dir / file, text, by);
    const Rendering now = rendered("qwen2_5_vl", dir);
    write_text(dir / file, before);
    const std::string message = refusal(dir, now);
    for (const std::string& part : {then.hash(), now.hash(), std::string("(then)"), (dir / "args.json").string()})
      EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
    return message;
  };
  const std::string reworded = said("chat_template.json", "assistant", "helper");
  EXPECT_NE(reworded.find("part at"), std::string::npos) << reworded;
  EXPECT_NE(reworded.find("helper"), std::string::npos) << reworded;
  const std::string pixels = said("preprocessor_config.json", "0.48145466", "0.28145466");
  EXPECT_NE(pixels.find("means and spreads"), std::string::npos) << pixels;
  const std::string merges = read_text(dir / "tokenizer.json");
  Json tokenizer = parse_json(merges, "tokenizer.json");
  Json& model = tokenizer["model"];
  model["merges"].erase(7);  // "h", "e"
  write_text(dir / "tokenizer.json", tokenizer.dump());
  EXPECT_NE(refusal(dir, rendered("qwen2_5_vl", dir)).find("other tokens"), std::string::npos);
}

TEST_F(RenderingTest, WhatIsNotBuiltOrNotKeptIsNotCompared) {
  const fs::path dir = copy("qwen2_5_vl");
  Rendering then = rendered("qwen2_5_vl", dir), now = then;
  write_text(dir / "args.json", with_rendering("{}", then));
  now.rows.erase("image");
  now.rows.erase("video");
  EXPECT_NE(refusal(dir, now).find("cannot be rendered"), std::string::npos);
  EXPECT_EQ(refusal(dir, now, kPictures), "");
  write_text(dir / "args.json", with_rendering("{}", now));
  EXPECT_EQ(refusal(dir, then), "") << "a run that built no tower kept nothing of pictures";
}

TEST_F(RenderingTest, AFolderOfOthersSaysNothing) {
  fs::create_directories(dir_);
  const Rendering now = rendered("qwen2", fixture("qwen2"));
  EXPECT_EQ(refusal(dir_, now), "");
  Json other = now.json();
  other["rows"]["conversation"]["shown"] = 3;
  Json later = now.json();
  later["version"] = 99;
  later["rows"]["conversation"]["tokens"] = "1";
  for (const std::string& text :
       {std::string("{}"), std::string("[1]"), std::string("{\"rendering\": \"x\"}"), std::string("{\"model\": "),
        Json{{"rendering", other}}.dump(), Json{{"rendering", later}}.dump()}) {
    write_text(dir_ / "args.json", text);
    EXPECT_EQ(refusal(dir_, now), "") << text;
  }
  EXPECT_EQ(with_rendering("no JSON", now), "no JSON");
}

TEST_F(RenderingTest, ARoundingOfAnotherMachineIsNoDifference) {
  const Rendering then = rendered("minicpm_o_2_6", fixture("minicpm_o_2_6"));
  Rendering now = then;
  for (double& figure : now.rows.at("audio").figures) figure += 1e-4;
  EXPECT_EQ(difference(then, now), "");
  now.rows.at("audio").figures.front() += 0.1;
  EXPECT_NE(difference(then, now), "");
}

}  // namespace
}  // namespace lockstep
