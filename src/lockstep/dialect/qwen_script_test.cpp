// What the flags of Qwen-VL's own script mean.
#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

std::string qwen_words(const std::vector<std::string>& more) {
  std::vector<std::string> words{"--model_name_or_path", "m", "--dataset_use", "a.json,b.json"};
  words.insert(words.end(), more.begin(), more.end());
  return " " + join(translate("sft", words, [](const std::string&) { return true; }).words, " ") + " ";
}

void expect_words(const std::string& words, const std::vector<std::string>& all) {
  for (const auto& some : all) EXPECT_NE(words.find(" " + some + " "), std::string::npos) << some << ":" << words;
}

TEST(QwenScript, TrainsWhatIsNamedAndNothingElse) {
  expect_words(qwen_words({"--tune_mm_vision", "False", "--tune_mm_mlp", "True", "--tune_mm_llm", "True"}),
               {"--tuner_type full", "--freeze_vit true", "--freeze_aligner false", "--freeze_llm false",
                "--dataset a.json b.json"});
  expect_words(qwen_words({"--tune_mm_mlp", "True"}),
               {"--freeze_vit true", "--freeze_aligner false", "--freeze_llm true"});
}

TEST(QwenScript, HasAdaptersOfItsOwnAndNotLlavas) {
  const std::string words =
      qwen_words({"--tune_mm_llm", "True", "--lora_enable", "True", "--lora_r", "8", "--mm_projector_lr", "1e-5"});
  expect_words(
      words, {"--tuner_type lora", "--target_modules q_proj k_proj v_proj o_proj", "--lora_rank 8", "--lora_alpha 128",
              "--lora_dropout 0.05", "--freeze_vit true", "--freeze_aligner true", "--aligner_lr 1e-5"});
  EXPECT_EQ(words.find("--freeze_llm"), std::string::npos) << words;
  EXPECT_NE(words.find("--learning_rate 5e-5"), std::string::npos) << "the Trainer's: " << words;
}

TEST(QwenScript, LimitsPicturesAndFilmsByTheProcessor) {
  expect_words(
      qwen_words({"--tune_mm_llm", "True"}),
      {"--media_variable MAX_PIXELS=451584", "--media_variable MIN_PIXELS=12544", "--media_variable FPS_MAX_FRAMES=8",
       "--media_variable FPS_MIN_FRAMES=4", "--max_length 512", "--truncation_strategy right"});
  const std::string said =
      qwen_words({"--tune_mm_llm", "True", "--max_pixels", "50176", "--min_pixels", "784", "--model_max_length", "8192",
                  "--data_flatten", "True", "--video_max_frames", "16"});
  expect_words(said, {"--media_variable MAX_PIXELS=50176", "--media_variable MIN_PIXELS=784",
                      "--media_variable FPS_MAX_FRAMES=16", "--max_length 8192", "--padding_free true"});
  EXPECT_EQ(said.find("451584"), std::string::npos);
  EXPECT_EQ(said.find("--max_pixels"), std::string::npos) << said;
  EXPECT_THROW((void)translate("sft", {"--model_name_or_path", "m", "--dataset_use", "a%50"},
                               [](const std::string&) { return true; }),
               UserError);
}

}  // namespace
}  // namespace lockstep
