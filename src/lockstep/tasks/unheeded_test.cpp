#include "lockstep/tasks/unheeded.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "lockstep/model/test_block.h"

namespace lockstep {
namespace {

using Words = std::set<std::string>;

/// What has no effect, without the reasons.
Words flags(const std::vector<std::string>& told) {
  Words out;
  for (const auto& text : told) {
    const size_t end = text.find(" has no effect: ");
    EXPECT_NE(end, std::string::npos) << text;
    out.insert(text.substr(0, end));
  }
  return out;
}

Model of_text() {
  Model model{.family = "fake"};
  add_fake(model, "layer", Component::kLlm, Modality::kText, {}, {});
  return model;
}

Model that_sees() {
  Model model = of_text();
  add_fake(model, "tower", Component::kVision, Modality::kText, {}, {});
  return model;
}

TEST(Unheeded, IsNothingOfARunAsItIs) {
  for (const Model& model : {of_text(), that_sees()}) {
    EXPECT_EQ(flags(unheeded_words(FineTuneOptions{}, model)), Words{});
    EXPECT_EQ(flags(unheeded_words(EvaluationOptions{}, model)), Words{});
    EXPECT_EQ(flags(unheeded_words(AnswerFileOptions{}, model)), Words{});
    EXPECT_EQ(flags(unheeded_words(EmbeddingOptions{}, model)), Words{});
    EXPECT_EQ(flags(unheeded_in_talk(AnswerFileOptions{}, model)), Words{});
  }
}

TEST(Unheeded, IsNothingThatNobodySaid) {
  FineTuneOptions tuned;
  tuned.rows.media.shrink_to_pixels = 589824;
  tuned.components.freeze_vit = true;
  EXPECT_EQ(flags(unheeded_words(tuned, of_text())), (Words{"--max_pixels 589824", "--freeze_vit true"}));
  tuned.run.unsaid = {"--max_pixels"};
  EXPECT_EQ(flags(unheeded_words(tuned, of_text())), Words{"--freeze_vit true"});
  FineTuneOptions judged;
  judged.train.eval_delay = 3;
  EXPECT_EQ(flags(unheeded_words(judged, of_text())), Words{"--eval_delay 3"}) << "of no rows";
  judged.val_dataset = {"rows.jsonl"};
  EXPECT_EQ(flags(unheeded_words(judged, of_text())), Words{});
  judged.eval_strategy = "end";
  EXPECT_EQ(flags(unheeded_words(judged, of_text())), Words{"--eval_delay 3"});
}

TEST(Unheeded, AnotherBeginningOfAdaptersThatGoOnIsTold) {
  FineTuneOptions tuned;
  tuned.tuner.lora.init = "pissa";
  EXPECT_EQ(unheeded_beginning(tuned, {.init = "true"}), "") << "nobody said so";
  tuned.tuner.given = {"--init_weights"};
  EXPECT_EQ(unheeded_beginning(tuned, {.init = "true"}),
            "--init_weights pissa has no effect: the adapter of the checkpoint has begun, with true");
  EXPECT_EQ(unheeded_beginning(tuned, {.init = "pissa"}), "");
}

TEST(Unheeded, WhatAModelsOwnFileSaysOfAnswersIsTold) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "unheeded_test";
  std::filesystem::create_directories(folder);
  const auto says = [&](const std::string& text) { std::ofstream(folder / "generation_config.json") << text; };
  says("{}");
  AnswerFileOptions answers;
  answers.run.model = folder;
  const auto told = [&] { return unheeded_words(answers, of_text()); };
  EXPECT_EQ(flags(told()), Words{});
  says(
      R"({"eos_token_id": [1, 2], "do_sample": false, "temperature": 0.6, "repetition_penalty": 1.0, "num_beams": 1})");
  EXPECT_EQ(flags(told()), Words{});
  says(R"({"do_sample": true, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05})");
  ASSERT_EQ(told().size(), 1u);
  EXPECT_EQ(told()[0],
            "repetition_penalty 1.05, temperature 0.7, top_p 0.8, top_k 20 of generation_config.json has no effect: "
            "--repetition_penalty 1.05 --temperature 0.7 --top_p 0.8 --top_k 20 does as it says");
  answers.sampling = {.temperature = 1, .top_k = 5, .top_p = 0.5, .repetition_penalty = 1.1};
  EXPECT_EQ(flags(told()), Words{}) << "the person has said it";
  says(R"({"do_sample": true, "top_p": 0.8, "min_p": 0.05, "no_repeat_ngram_size": 3, "stop_strings": ["\n\n"]})");
  EXPECT_EQ(told(),
            (std::vector<std::string>{
                "no_repeat_ngram_size 3, min_p 0.05 of generation_config.json has no effect: "
                "--no_repeat_ngram_size 3 --min_p 0.05 does as it says",
                R"(stop_strings ["\n\n"] of generation_config.json has no effect: --stop_words does as it says)"}));
  answers.sampling.min_p = 0.1, answers.sampling.no_repeat_ngram_size = 2, answers.sampling.stop_words = {"."};
  EXPECT_EQ(flags(told()), Words{});
  says(R"({"do_sample": true, "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05})");
  answers.sampling = {.temperature = 1, .repetition_penalty = 1.1};  // which takes neither of the others away
  const Words both{"top_p 0.8, top_k 20 of generation_config.json"};
  EXPECT_EQ(flags(told()), both);
  says(R"({"top_p": 0.8, "top_k": 20})");
  EXPECT_EQ(flags(told()), both) << "which count as soon as tokens are drawn";
  answers.sampling.top_k = 5;
  says(R"({"do_sample": true, "top_h": 0.1, "typical_p": 1.0, "num_return_sequences": 1, "guidance_scale": 1.5})");
  EXPECT_EQ(flags(told()), Words{"guidance_scale 1.5, top_h 0.1 of generation_config.json"});
  answers.sampling = {};
  says(R"({"do_sample": true, "top_p": 0.95})");
  ASSERT_EQ(told().size(), 1u);
  EXPECT_EQ(
      told()[0],
      "do_sample true, top_p 0.95 of generation_config.json has no effect: --temperature 1 --top_p 0.95 --top_k 50 "
      "does as it says");
  says(R"({"do_sample": true, "top_h": 0.1, "typical_p": 1.0, "num_return_sequences": 1, "guidance_scale": 1.5})");
  answers.sampling = {.temperature = 1, .top_k = 5, .repetition_penalty = 1.1};
  FineTuneOptions sft;
  sft.run.model = folder;
  sft.val_dataset = {"rows.jsonl"};
  sft.sampling = answers.sampling;
  sft.predict_with_generate = true;
  EXPECT_EQ(flags(unheeded_words(sft, of_text())), Words{"guidance_scale 1.5, top_h 0.1 of generation_config.json"});
  says(R"({"num_beams": 4, "suppress_tokens": [7], "bad_words_ids": null, "min_length": 0})");
  EXPECT_EQ(flags(told()), Words{"num_beams 4, suppress_tokens [7] of generation_config.json"});
  EXPECT_EQ(flags(unheeded_in_talk(answers, of_text())).size(), 1u);
  EvaluationOptions evaluation{.run = answers.run};
  EXPECT_EQ(flags(unheeded_words(evaluation, of_text())).size(), evaluation.generate ? 1u : 0u);
}

TEST(Unheeded, WhatAModelsOwnFileSaysOfLengthIsTold) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "unheeded_test_length";
  std::filesystem::create_directories(folder);
  const auto says = [&](const std::string& text) { std::ofstream(folder / "generation_config.json") << text; };
  AnswerFileOptions answers;
  answers.run.model = folder;
  const auto told = [&] { return unheeded_words(answers, of_text()); };
  says(R"({"max_new_tokens": 2048, "max_length": 4096})");
  EXPECT_EQ(flags(told()), Words{"max_new_tokens 2048 of generation_config.json"});
  says(R"({"max_length": 4096})");
  EXPECT_EQ(flags(told()), Words{"max_length 4096 of generation_config.json"});
  answers.max_new_tokens = 9;
  EXPECT_EQ(flags(told()), Words{}) << "the person has said it";
}

TEST(Unheeded, ATemperatureAloneDrawsAmongMoreThanInTransformers) {
  AnswerFileOptions answers;
  answers.sampling.temperature = 0.7;
  const auto told = unheeded_words(answers, of_text());
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("--top_k 50"), std::string::npos) << told[0];
  answers.sampling.top_k = 50;
  EXPECT_EQ(unheeded_words(answers, of_text()).size(), 0u);
}

TEST(Unheeded, RowsBeyondTheModelsPositionsAreTold) {
  AnswerFileOptions answers;
  answers.rows.max_length = 512;
  Model model = of_text();
  model.dims.max_positions = 512;
  EXPECT_EQ(unheeded_words(answers, model).size(), 0u);
  answers.rows.max_length = 513;
  ASSERT_EQ(unheeded_words(answers, model).size(), 1u);
  EXPECT_EQ(unheeded_words(answers, model)[0].find("--max_length 513 goes beyond the 512 positions"), 0u);
  EXPECT_EQ(unheeded_in_talk(answers, model).size(), 1u);
  model.dims.positions_end = true;  // which is refused elsewhere
  EXPECT_EQ(unheeded_words(answers, model).size(), 0u);
}

TEST(Unheeded, AConstantRateHasNoWarmUp) {
  FineTuneOptions sft;
  sft.train.schedule = ScheduleKind::kConstant;
  sft.train.warmup_ratio = 0.5;
  EXPECT_EQ(flags(unheeded_words(sft, of_text())), Words{"--warmup_ratio 0.5"});
  sft.train.warmup_ratio = FineTuneOptions{}.train.warmup_ratio;
  sft.train.warmup_steps = 3;
  EXPECT_EQ(flags(unheeded_words(sft, of_text())), Words{"--warmup_steps 3"});
  sft.train.schedule = ScheduleKind::kConstantWithWarmup;
  EXPECT_EQ(flags(unheeded_words(sft, of_text())), Words{});
}

TEST(Unheeded, TopKAndTopPDrawNothingFromALikeliestToken) {
  AnswerFileOptions answers;
  answers.sampling = {.top_k = 5, .top_p = 0.5, .repetition_penalty = 1.1};
  FineTuneOptions sft;
  sft.sampling = answers.sampling;
  sft.predict_with_generate = true;
  const Words both{"--top_k 5", "--top_p 0.5"};
  EXPECT_EQ(flags(unheeded_words(answers, of_text())), both);
  EXPECT_EQ(flags(unheeded_in_talk(answers, of_text())), both);
  EXPECT_EQ(flags(unheeded_words(EvaluationOptions{.sampling = answers.sampling}, of_text())), both);
  EXPECT_EQ(flags(unheeded_words(sft, of_text())), both);
  answers.sampling.temperature = 0.7;
  EXPECT_EQ(flags(unheeded_words(answers, of_text())), Words{});
}

TEST(Unheeded, OfAnEvaluationWithoutAnswers) {
  EvaluationOptions options{.generate = false, .max_new_tokens = 9, .show = 3};
  options.sampling = {.temperature = 0.7, .skip_special_tokens = true};
  options.metric.timeout_s = 5;
  EXPECT_EQ(flags(unheeded_words(options, of_text())), (Words{"--max_new_tokens 9", "--show 3", "--temperature 0.7",
                                                              "--skip_special_tokens true", "--metric_timeout 5"}));
}

TEST(Unheeded, OfMediaToAModelOfText) {
  FineTuneOptions sft;
  sft.rows.media.shrink_to_pixels = 1000;
  sft.rows.media.box_unit = BoxUnit::kPixels;
  sft.components.freeze_vit = true;
  sft.vit_gradient_checkpointing = false;
  EXPECT_EQ(flags(unheeded_words(sft, of_text())), (Words{"--max_pixels 1000", "--norm_bbox none", "--freeze_vit true",
                                                          "--vit_gradient_checkpointing false"}));
  EXPECT_EQ(flags(unheeded_words(sft, that_sees())), Words{});
}

TEST(Unheeded, OfTrainingThatNothingFollows) {
  FineTuneOptions sft;
  sft.data_seed = 7;
  sft.dataset_shuffle = false;
  sft.per_device_eval_batch_size = 4;
  sft.greater_is_better = true;
  sft.batch.memory_fraction = 0.5;
  sft.logger.name = "mine";
  sft.logger.settings["swanlab_mode"] = "local";
  EXPECT_EQ(flags(unheeded_words(sft, of_text())),
            (Words{"--data_seed 7", "--per_device_eval_batch_size 4", "--greater_is_better true",
                   "--memory_fraction 0.5", "--run_name mine", "--swanlab_mode local"}));
  sft.split_dataset_ratio = 0.1;  // which rows are kept is drawn by data_seed
  sft.report_to = {"swanlab"};
  sft.checkpoint_as_needed = true;
  EXPECT_EQ(flags(unheeded_words(sft, of_text())), Words{});
}

TEST(Unheeded, OfRowsWhereThereAreNone) {
  AnswerFileOptions talk;
  talk.rows.columns = {{"mine", "query"}};
  talk.rows.infos = {"a.json", "b.json"};
  talk.rows.taught.of = Taught::Of::kAll;
  talk.rows.strict = talk.overwrite = true;
  talk.rows.max_samples = 3;
  talk.batch.rows = 2;
  EXPECT_EQ(flags(unheeded_in_talk(talk, of_text())),
            (Words{"--columns", "--custom_dataset_info a.json b.json", "--loss_scale", "--strict true",
                   "--overwrite true", "--max_samples 3", "--max_batch_size 2"}));
  EXPECT_EQ(flags(unheeded_words(talk, of_text())), Words{"--loss_scale"});
  EXPECT_EQ(flags(unheeded_words(EmbeddingOptions{.rows = talk.rows}, of_text())), Words{"--loss_scale"});
}

}  // namespace
}  // namespace lockstep
