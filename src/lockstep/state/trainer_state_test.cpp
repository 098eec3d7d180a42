#include "lockstep/state/trainer_state.h"

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"

namespace lockstep {
namespace {

TEST(TrainerState, TheBestThatIsSavedStaysUntilABetterOneIsSaved) {
  TrainerState state;
  const auto evaluate = [&](int64_t step, double loss) {
    state.global_step = step;
    return state.judge(loss, /*greater_is_better=*/false);
  };
  EXPECT_TRUE(evaluate(2, 0.5));
  state.saved_as("checkpoint-2");
  EXPECT_TRUE(evaluate(3, 0.3));  // not saved
  EXPECT_EQ(state.best_model_checkpoint, "checkpoint-2");
  EXPECT_EQ(state.best_global_step, 3);
  EXPECT_FALSE(evaluate(4, 0.6));
  state.saved_as("checkpoint-4");
  EXPECT_EQ(state.best_model_checkpoint, "checkpoint-2");
  EXPECT_FALSE(evaluate(6, 0.4));  // better than what is saved
  state.saved_as("checkpoint-6");
  EXPECT_EQ(state.best_model_checkpoint, "checkpoint-6");
  EXPECT_EQ(state.best_metric, 0.3);
  EXPECT_EQ(state.evaluations_without_better, 2);
  state.global_step = 7;  // saved, not evaluated
  state.saved_as("checkpoint-7");
  EXPECT_EQ(state.best_model_checkpoint, "checkpoint-6");
}

TEST(TrainerState, WhatTheBestSavedOneCameToIsKept) {
  TrainerState state;
  state.best_metric = 0.3;
  state.best_global_step = 3;
  state.best_model_checkpoint = "checkpoint-2";
  state.best_saved_metric = 0.5;
  Json json = to_json(state);
  EXPECT_EQ(json["best_metric"], 0.3);
  EXPECT_EQ(json["best_global_step"], 3);
  EXPECT_EQ(trainer_state_from_json(json, "state").best_saved_metric, 0.5);
  json["lockstep"].erase("best_saved_metric");  // of a checkpoint whose best evaluation was the one that was saved
  EXPECT_EQ(trainer_state_from_json(json, "state").best_saved_metric, 0.3);
}

class OfOthers : public InTestFolder {};

TEST_F(OfOthers, ACheckpointIsTakenAsTheModelOrTheAdapterThatItIs) {
  const auto hint = [&] {
    try {
      (void)trainer_state_from_json(Json::object(), (folder_ / "trainer_state.json").string());
    } catch (const UserError& error) {
      return error.hint();
    }
    return std::string("none");
  };
  EXPECT_NE(hint().find("take the folder as --model"), std::string::npos) << hint();
  script("adapter_config.json", "{}");
  EXPECT_NE(hint().find("take the folder as --adapters"), std::string::npos) << hint();
}

TEST(TrainerState, NumbersThatNoRunHasAreNamed) {
  const auto refusal = [](const char* part, const char* key, const Json& value) -> std::string {
    Json json = to_json(TrainerState());
    Json& within = *part == '\0' ? json["lockstep"] : json["lockstep"][part];
    within[key] = value;
    try {
      (void)trainer_state_from_json(json, "state");
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
      return error.message();
    }
    return "";
  };
  EXPECT_EQ(refusal("", "updates", 0), "");
  EXPECT_EQ(refusal("", "updates", -1), "state: updates: expected a number from 0, found -1");
  EXPECT_EQ(refusal("cursor", "rows", -3), "state: cursor.rows: expected a number from 0, found -3");
  for (const double scale : {0.0, -2.0})
    EXPECT_EQ(refusal("loss_scale", "scale", scale).find("state: loss_scale.scale: expected a number above 0"), 0U);
}

}  // namespace
}  // namespace lockstep
