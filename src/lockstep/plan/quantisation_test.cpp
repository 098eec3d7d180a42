#include "lockstep/plan/quantisation.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/test_adapters.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the model of these tests

const QuantFormat kNf4{.kind = QuantKind::kNf4};

Quantisation chosen(const Model& model, std::vector<std::string> skip, bool strict = true) {
  return choose_quantisation(model, naming_of_adapters(model, ""),
                             {.format = kNf4, .skip = std::move(skip), .strict = strict});
}

bool any(const Quantisation& found, const std::string& part) {
  return std::ranges::any_of(found.formats, [&](const auto& one) { return one.first.find(part) != std::string::npos; });
}

PlanOptions lora_options(const Model& model, int world) {
  AdapterLayout layout = choose_adapters(model, naming_of_adapters(model, ""),
                                         {.config = {.targets = {.names = {"q_proj"}, .regex = {}}}});
  return {.world = world,
          .zero = {3},
          .adapters = std::make_shared<const AdapterLayout>(std::move(layout)),
          .quantised = std::make_shared<const Quantisation>(chosen(model, {"none"}))};
}

TEST(Quantisation, TowersProjectorsHeadsAndTablesStayUnlessItIsSaidOtherwise) {
  const Model model = adapted_model();
  const Quantisation usual = chosen(model, {});
  EXPECT_TRUE(any(usual, "layers.0") && any(usual, "layers.1"));
  EXPECT_FALSE(any(usual, "visual") || any(usual, "projector") || any(usual, "embed") || any(usual, "lm_head"));
  const Quantisation all = chosen(model, {"none"});
  EXPECT_TRUE(any(all, "visual.blocks.0.attn.q_proj.weight") && any(all, "projector"));
  EXPECT_FALSE(any(all, "patch_embed") || any(all, "embed_tokens") || any(all, "lm_head") || any(all, "bias"));
  const Quantisation some = chosen(model, {"visual", "k_proj", "layers.1", "lm_head"});
  EXPECT_FALSE(any(some, "visual") || any(some, "k_proj") || any(some, "layers.1"));
  EXPECT_TRUE(any(some, "layers.0.self_attn.q_proj") && any(some, "projector"));
}

TEST(Quantisation, NamesASlipAndNothingThatIsLeft) {
  const Model model = adapted_model();
  EXPECT_THROW(chosen(model, {"k_prjo"}), UserError);
  EXPECT_NO_THROW(chosen(model, {"k_prjo"}, /*strict=*/false));
  EXPECT_THROW(chosen(model, {"model"}), UserError);
}

TEST(Quantisation, UnitsOfCodesStandApartAndAreCountedInBytes) {
  const Model model = adapted_model();
  const Plan plan = make_plan(model, lora_options(model, 3));
  int64_t params = 0;
  for (const Unit& unit : plan.units) {
    EXPECT_EQ(unit.quantised.has_value(), unit.name.ends_with(" quantised")) << unit.name;
    EXPECT_TRUE(plan.leases(unit));
    params += unit.kept_shard() * dtype_bytes(unit.kept_dtype());
    if (!unit.quantised) continue;
    EXPECT_FALSE(unit.trainable);
    EXPECT_EQ(unit.kept_dtype(), Dtype::kU8);
    EXPECT_EQ(unit.quantised->padded, unit.quantised->shard * 3);
    int64_t end = 0;
    for (const QuantPart& part : unit.quantised->parts) {
      EXPECT_EQ(part.begin % Plan::kAlign, 0);
      EXPECT_GE(part.begin, end);
      end = part.begin + 1;
    }
  }
  EXPECT_EQ(plan.state_bytes().params, params);
  EXPECT_GT(plan.state_bytes().transient, 0);
}

TEST(Quantisation, ChangesThePlansHash) {
  const Model model = adapted_model();
  PlanOptions options = lora_options(model, 2);
  const uint64_t codes = make_plan(model, options).hash();
  options.quantised = nullptr;
  EXPECT_NE(make_plan(model, options).hash(), codes);
}

TEST(Quantisation, CodesAreNotTrained) {
  const Model model = adapted_model();
  PlanOptions options = lora_options(model, 1);
  options.adapters = nullptr;
  EXPECT_THROW(make_plan(model, options), UserError);
  options.training = false;
  EXPECT_NO_THROW(make_plan(model, options));
}

}  // namespace
}  // namespace lockstep
