#include "lockstep/plan/freezing.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/plan.h"
#include "lockstep/plan/test_blocks.h"

namespace lockstep {
namespace {

/// Keys that are trained, in the order of the blocks.
std::vector<std::string> trained(const FreezeChoice& choice, std::set<Component> components = {}) {
  const Model model = named_model(/*tied=*/false);
  std::vector<std::string> keys;
  for (const auto& unit : make_plan(model, {.frozen = std::move(components), .freeze = choice}).units) {
    if (!unit.trainable) continue;
    for (const auto& param : unit.params) keys.push_back(param.spec.sources[0].key);
  }
  return keys;
}

std::string why(const FreezeChoice& choice) {
  try {
    trained(choice);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Freezing, TakesBeginningsAndPatternsOfNames) {
  const auto all = trained({});
  EXPECT_EQ(trained({.prefixes = {"model.layers.0", "model.layers.1", "visual", "lm_head"}}),
            (std::vector<std::string>{"model.embed_tokens.weight", "model.layers.2.self_attn.q_proj.weight",
                                      "model.layers.2.mlp.up_proj.weight", "model.layers.2.norm.weight",
                                      "model.norm.weight"}));
  EXPECT_EQ(trained({.regex = "^(model|lm_head|visual.blocks.0)"}),
            (std::vector<std::string>{"visual.blocks.1.attn.weight"}));
  EXPECT_EQ(trained({.regex = R"(layers\.\d+\.(self_attn|mlp)|visual|embed|lm_head)"}),
            (std::vector<std::string>{"model.layers.0.norm.weight", "model.layers.1.norm.weight",
                                      "model.layers.2.norm.weight", "model.norm.weight"}));
  EXPECT_EQ(all.size(), 14U);
}

TEST(Freezing, TrainsWhatIsNamedWhateverFrozeIt) {
  EXPECT_EQ(trained({.trainable_prefixes = {"model.layers.2.mlp"}, .trainable_regex = "blocks.1"},
                    {Component::kLlm, Component::kVision}),
            (std::vector<std::string>{"visual.blocks.1.attn.weight", "model.layers.2.mlp.up_proj.weight"}));
}

TEST(Freezing, FreezesTheFirstPartOfAllNumbers) {
  EXPECT_EQ(trained({.ratio = 0}).size(), 14U);
  EXPECT_EQ(trained({.ratio = 0.5}).size(), 7U);
  EXPECT_EQ(trained({.ratio = 0.55}).size(), 7U) << "a matrix that would be too much stays";
  EXPECT_EQ(trained({.ratio = 0.5}).front(), "model.layers.1.mlp.up_proj.weight");
}

TEST(Freezing, TrainsSomeLayersOfTheLanguageModelAlone) {
  const std::set<Component> towers{Component::kVision, Component::kProjector};
  EXPECT_EQ(trained({.layers = 1}, towers),
            (std::vector<std::string>{"model.layers.2.self_attn.q_proj.weight", "model.layers.2.mlp.up_proj.weight",
                                      "model.layers.2.norm.weight"}));
  EXPECT_EQ(trained({.layers = -2, .layer_modules = {"mlp", "norm"}, .extra_modules = {"embed_tokens"}}, towers),
            (std::vector<std::string>{"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                                      "model.layers.0.norm.weight", "model.layers.1.mlp.up_proj.weight",
                                      "model.layers.1.norm.weight"}));
  EXPECT_EQ(trained({.layers = 9, .layer_modules = {"all"}}, towers).size(), 9U);
}

TEST(Freezing, NamesWhatMatchesNothing) {
  EXPECT_NE(why({.layers = 1, .layer_modules = {"mpl"}}).find("--freeze_trainable_modules mpl"), std::string::npos);
  EXPECT_NE(why({.layers = 1, .extra_modules = {"head2"}}).find("--freeze_extra_modules head2"), std::string::npos);
  EXPECT_NE(why({.layer_modules = {"mlp"}}).find("no layers are chosen"), std::string::npos);
  EXPECT_NE(why({.prefixes = {"model.layer.0"}}).find("--freeze_parameters model.layer.0"), std::string::npos);
  EXPECT_NE(why({.trainable_prefixes = {"visul"}}).find("--trainable_parameters visul"), std::string::npos);
  EXPECT_NE(why({.regex = "k_proj"}).find("--freeze_parameters_regex k_proj: no parameter"), std::string::npos);
  EXPECT_NE(why({.trainable_regex = "("}).find("--trainable_parameters_regex"), std::string::npos);
  EXPECT_NE(why({.regex = "."}).find("nothing is left to train"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
