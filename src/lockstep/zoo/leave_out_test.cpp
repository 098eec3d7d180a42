// Every family with a tower can be built without it: what is left is the language model, whole and alone.
#include "lockstep/model/leave_out.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

/// Tokens' texts become ids when a checkpoint is written.
void number_tokens(Json& config) {
  for (auto& [key, value] : config.items()) {
    if (value.is_object()) number_tokens(value);
    if (value.is_string() && value.get<std::string>().starts_with("<")) value = 7;
  }
}

Model fresh_model(const Family& family) {
  Json config = family.fresh_files("tiny", 300).front().second;
  number_tokens(config);
  return family.build(HfConfig(config, "config.json"));
}

TEST(LeaveOutOfFamilies, WithoutItsTowerAFamilyIsItsLanguageModel) {
  int families_with_a_tower = 0;
  for (const auto& family : families()) {
    const Model whole = fresh_model(family);
    const auto components = components_of(whole);
    if (std::ranges::find(components, Component::kVision) == components.end()) continue;
    ++families_with_a_tower;
    Model text = fresh_model(family);
    const bool hears = std::ranges::find(components, Component::kAudio) != components.end();
    leave_out(text, hears ? std::set{Component::kVision, Component::kAudio} : std::set{Component::kVision});
    EXPECT_EQ(names_of(components_of(text)), "llm") << family.name;
    std::vector<std::string> expected;
    size_t taken = 0;
    for (const auto& block : whole.blocks) {
      if (block->component() == Component::kLlm) {
        expected.push_back(block->name());
        continue;
      }
      for (const auto& param : block->params()) taken += param.sources.size();
    }
    std::vector<std::string> found;
    for (const auto& block : text.blocks) {
      found.push_back(block->name());
      EXPECT_TRUE(block->always_runs()) << family.name << " " << block->name();
    }
    EXPECT_EQ(found, expected) << family.name;
    EXPECT_EQ(text.unused.size(), whole.unused.size() + taken) << family.name;
    EXPECT_EQ(text.blocks[static_cast<size_t>(text.input_blocks) - 1]->name(), expected.front()) << family.name;
  }
  EXPECT_GE(families_with_a_tower, 2);
}

}  // namespace
}  // namespace lockstep
