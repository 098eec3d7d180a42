// What the flags of InternVL's own script mean.
#include <fstream>

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/test_folder.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/test_verb.h"
#include "lockstep/dialect/translate.h"

namespace lockstep {
namespace {

class InternVlScript : public InTestFolder {
 protected:
  /// All words that the script's become, with a blank at both ends.
  std::string words_of(const std::vector<std::string>& more) const {
    std::vector<std::string> words{"--model_name_or_path", "m"};
    words.insert(words.end(), more.begin(), more.end());
    const auto has = [](const std::string& name) { return has_meanings(name, Stack::kTrainer); };
    return " " + join(translate("sft", words, has).words, " ") + " ";
  }
  std::string meta(const std::string& text) const {
    std::ofstream(folder_ / "meta.json") << text;
    return (folder_ / "meta.json").string();
  }
};

bool says(const std::string& words, const std::string& some) {
  return words.find(" " + some + " ") != std::string::npos;
}

TEST_F(InternVlScript, NamesDataSetsAndTheirTiles) {
  const std::string file =
      meta(R"({"a": {"annotation": "a.jsonl"}, "b": {"annotation": "b.jsonl", "max_dynamic_patch": 6}})");
  const std::string cut = words_of({"--meta_path", file, "--dynamic_image_size", "True", "--max_dynamic_patch", "6"});
  EXPECT_TRUE(says(cut, "--dataset a b")) << cut;
  EXPECT_TRUE(says(cut, "--custom_dataset_info " + file)) << cut;
  EXPECT_TRUE(says(cut, "--media_variable MAX_NUM=6")) << cut;
  EXPECT_TRUE(says(words_of({"--meta_path", file}), "--media_variable MAX_NUM=1")) << "whole pictures";
  EXPECT_THROW((void)words_of({"--meta_path", file, "--dynamic_image_size", "True"}), UserError) << "12 and 6";
  EXPECT_THROW((void)words_of({"--meta_path", meta("[]")}), UserError);
}

TEST_F(InternVlScript, TrainsAdaptersOnTheLanguageModelThatItFreezes) {
  const std::string alone =
      words_of({"--freeze_llm", "True", "--freeze_mlp", "True", "--freeze_backbone", "True", "--use_llm_lora", "16"});
  EXPECT_TRUE(says(alone, "--tuner_type lora")) << alone;
  EXPECT_TRUE(says(alone, "--lora_rank 16")) << alone;
  EXPECT_TRUE(says(alone, "--lora_alpha 32")) << alone;
  EXPECT_TRUE(says(alone, "--lora_dropout 0.05")) << alone;
  EXPECT_FALSE(says(alone, "--freeze_llm true")) << alone;
  const std::string beside =
      words_of({"--freeze_llm", "True", "--freeze_mlp", "False", "--freeze_backbone", "True", "--use_llm_lora", "16"});
  EXPECT_TRUE(says(beside, "--tuner_type lora_llm")) << beside;
  const std::string none = words_of({"--freeze_llm", "True", "--freeze_mlp", "False", "--use_llm_lora", "0"});
  EXPECT_TRUE(says(none, "--tuner_type full")) << none;
  EXPECT_TRUE(says(none, "--freeze_llm true")) << none;
}

TEST_F(InternVlScript, CutsRowsAndRefusesWhatWouldBeOtherNumbers) {
  const std::string words =
      words_of({"--max_seq_length", "4096", "--force_image_size", "448", "--grad_checkpoint", "True", "--conv_style",
                "internvl2_5", "--drop_path_rate", "0.0", "--ps_version", "v2", "--down_sample_ratio", "0.5"});
  EXPECT_TRUE(says(words, "--max_length 4096")) << words;
  EXPECT_TRUE(says(words, "--truncation_strategy right")) << words;
  EXPECT_TRUE(says(words, "--gradient_checkpointing true")) << words;
  EXPECT_TRUE(says(words, "--media_variable INPUT_SIZE=448")) << words;
  for (const std::vector<std::string>& asked : std::vector<std::vector<std::string>>{{"--drop_path_rate", "0.1"},
                                                                                     {"--loss_reduction", "square"},
                                                                                     {"--use_backbone_lora", "8"},
                                                                                     {"--use_packed_ds", "True"}}) {
    EXPECT_THROW((void)words_of(asked), UserError) << asked[0];
  }
  for (const std::string& most :
       {std::string(20, '9'), std::string("9223372036854775807"), std::string("-9223372036854775808")}) {
    const std::string beyond = words_of({"--use_llm_lora", most});
    EXPECT_TRUE(says(beyond, "--lora_rank " + most)) << beyond << "which is for who takes it to refuse";
    EXPECT_FALSE(says(beyond, "--lora_alpha")) << beyond;
  }
}

}  // namespace
}  // namespace lockstep
