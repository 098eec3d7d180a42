#include "lockstep/dialect/translate.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/flag_table.h"
#include "lockstep/dialect/flag_value.h"
#include "lockstep/dialect/test_verb.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

bool has_all(const std::string& name) { return name != "mdoel" && has_meanings(name, Stack::kSwift); }

std::string words_of(const Words& args, const std::string& verb = "sft") {
  return join(translate(verb, args, has_all).words, " ");
}

std::string refusal_of(const Words& args) {
  try {
    return "taken: " + words_of(args);
  } catch (const UserError& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
}

TEST(Translate, ReadsEverySpellingOfTheStacksParsers) {
  EXPECT_EQ(
      words_of({"--model=m", "--packing", "--freeze-vit", "False", "--save_steps", "2e2", "--learning_rate", "1.0e-4"}),
      "--model m --packing true --freeze_vit false --save_steps 200 --learning_rate 1.0e-4");
  EXPECT_EQ(
      words_of({"--no_packing", "--save_total_limit", "-1", "--resume_from_checkpoint", "None", "--eval_steps", "0.1"}),
      "--packing false --eval_steps 0.1");
  EXPECT_EQ(words_of({"--dataset", "['a', \"b\"]", "--columns", "{'q': 'query'}", "--modules_to_save", "[]"}),
            "--dataset a b --columns {\"q\":\"query\"}");
  EXPECT_EQ(words_of({"--max_memory", "{0: \"20GB\", 'cpu': None, 1: True}"}),
            "--max_memory {\"0\":\"20GB\",\"cpu\":null,\"1\":true}");
  EXPECT_EQ(words_of({"--virtual_devices", "2", "--mdoel", "x"}), "--virtual_devices 2 --mdoel x")
      << "nobody's stay as they are";
}

TEST(Translate, NamesTheFlagTheValueAndWhatIsExpected) {
  EXPECT_EQ(refusal_of({"--save_steps", "often"}),
            "--save_steps: expected a number of steps, or a part of all steps between 0 and 1, found \"often\" | ");
  EXPECT_NE(refusal_of({"--packing", "maybe"}).find("--packing: expected true or false, found \"maybe\""),
            std::string::npos);
  EXPECT_NE(refusal_of({"--seed", "1.5"}).find("--seed: expected a whole number, found \"1.5\""), std::string::npos);
  EXPECT_NE(refusal_of({"--lisa_activated_layers", "2"}).find("LISA is not built"), std::string::npos);
  EXPECT_NE(refusal_of({"--tuner_type", "lora", "--train_type", "full"})
                .find("--tuner_type lora and --train_type full contradict each other"),
            std::string::npos);
}

TEST(Translate, TheLastOfTwoCountsAndIsTold) {
  const Translation found = translate("sft", {"--seed", "1", "--lora_rank", "4", "--seed", "2"}, has_all);
  EXPECT_EQ(join(found.words, " "), "--seed 2 --lora_rank 4");
  EXPECT_EQ(found.notices(), Words{"--seed 1 makes no difference: --seed 2 stands after it, and the last counts"});
}

TEST(Translate, FlagsOfLockstepKeepTheirMeaning) {
  const auto has = [](const std::string& name) { return name == "metric" || name == "model"; };
  const Words words = {"--model", "m", "--metric", "./a.py", "--metric", "./b.py"};
  EXPECT_EQ(translate("eval", words, has).words, words);
  EXPECT_TRUE(translate("eval", words, has).understood.empty());
}

TEST(Translate, OlderNamesOfSwiftAreItsNewOnes) {
  EXPECT_EQ(words_of({"--model_id_or_path", "m", "--sft_type", "lora", "--lora_target_modules", "ALL", "--dtype",
                      "bf16", "--custom_train_dataset_path", "a.jsonl", "--batch_size", "2", "--deepspeed",
                      "default-zero2", "--dtype", "AUTO"}),
            "--model m --tuner_type lora --target_modules all-linear --dataset a.jsonl --per_device_train_batch_size 2 "
            "--deepspeed zero2");
}

TEST(Translate, LlamaFactoryIsRecognisedWithItsDefaults) {
  const Translation found = translate("sft",
                                      {"--model_name_or_path",
                                       "m",
                                       "--stage",
                                       "sft",
                                       "--finetuning_type",
                                       "lora",
                                       "--lora_target",
                                       "all",
                                       "--dataset",
                                       "a, b",
                                       "--template",
                                       "qwen2_vl",
                                       "--cutoff_len",
                                       "2048",
                                       "--bf16",
                                       "true",
                                       "--quantization_bit",
                                       "4",
                                       "--lora_rank",
                                       "8",
                                       "--gradient_accumulation_steps",
                                       "8",
                                       "--lr_scheduler_type",
                                       "cosine"},
                                      has_all);
  EXPECT_EQ(found.stack, Stack::kLlamaFactory);
  const std::string words = join(found.words, " ");
  EXPECT_TRUE(
      words.starts_with("--model m --tuner_type lora --target_modules all-linear --dataset a b --max_length 2048 "
                        "--torch_dtype bfloat16 --quant_method bnb --quant_bits 4 --lora_rank 8 "
                        "--gradient_accumulation_steps 8 --lr_scheduler_type cosine "))
      << words;
  for (const char* word : {"--learning_rate 5e-5", "--weight_decay 0 ", "--lora_dropout 0", "--lora_alpha 16",
                           "--max_pixels 589824", "--truncation_strategy turns", "--media_default FPS=2.0",
                           "--per_device_train_batch_size 8", "--adam_beta2 0.999", "--freeze_aligner true"}) {
    EXPECT_NE((words + " ").find(word), std::string::npos) << word;
  }
}

/// By default its towers and projectors are frozen, and names of modules mean none of theirs.
TEST(Translate, NamesOfLlamaFactoryMeanWhatIsNotFrozen) {
  const auto words = [](std::vector<std::string> more) {
    std::vector<std::string> all{"--model_name_or_path", "m", "--stage", "sft", "--finetuning_type", "lora"};
    all.insert(all.end(), more.begin(), more.end());
    return join(translate("sft", all, has_all).words, " ") + " ";
  };
  EXPECT_NE(words({"--lora_target", "q_proj,v_proj"}).find("--target_modules q_proj v_proj --adapt_frozen false"),
            std::string::npos);
  EXPECT_EQ(words({"--lora_target", "all"}).find("--adapt_frozen"), std::string::npos);
  const std::string projector = "--freeze_multi_modal_projector";
  EXPECT_NE(words({"--lora_target", "q_proj", projector, "false"}).find("--freeze_aligner false"), std::string::npos);
  EXPECT_EQ(words({"--lora_target", "all", projector, "false"}).find("--freeze_aligner false"), std::string::npos);
}

/// LLaMA-Factory trains only where do_train says so.
TEST(Translate, WhatAsksForAnswersAloneDoesNotTrain) {
  const Words factory = {"--model_name_or_path", "m", "--stage", "sft", "--finetuning_type", "lora"};
  const auto with = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const std::string refused = "nothing is to be trained where do_train is not true";
  EXPECT_NE(refusal_of(with(factory, {"--do_predict", "true"})).find(refused), std::string::npos);
  EXPECT_NE(refusal_of({"--do_train", "false"}).find(refused), std::string::npos);
  EXPECT_EQ(refusal_of(with(factory, {"--do_predict", "true", "--do_train", "true"})).find(refused), std::string::npos);
  EXPECT_EQ(words_of({"--do_eval", "true"}), "") << "scripts of the others train whatever it says";
  EXPECT_EQ(words_of({"--do_train", "false", "--do_eval", "true"}, "eval"), "");

  EXPECT_EQ(verb_meant("sft", with(factory, {"--do_predict", "true"})), "eval");
  EXPECT_EQ(verb_meant("sft", with(factory, {"--do_eval"})), "eval");
  EXPECT_EQ(verb_meant("sft", with(factory, {"--do_predict", "true", "--do_train", "true"})), "sft");
  EXPECT_EQ(verb_meant("sft", with(factory, {"--do_eval", "false"})), "sft");
  EXPECT_EQ(verb_meant("sft", {"--model", "m", "--do_eval", "true"}), "sft");
  EXPECT_EQ(verb_meant("infer", with(factory, {"--do_predict", "true"})), "infer");
}

/// Rows to train on are none to measure.
TEST(Translate, LlamaFactoryMeasuresRowsOfItsOwn) {
  const Words factory = {"--model_name_or_path", "m", "--stage", "sft", "--finetuning_type", "lora", "--dataset", "a"};
  try {
    (void)translate("eval", factory, has_all);
    ADD_FAILURE() << "training rows were taken";
  } catch (const UserError& error) {
    EXPECT_NE(error.message().find("nothing says which rows are measured"), std::string::npos) << error.message();
  }
  Words with_own = factory;
  with_own.insert(with_own.end(), {"--eval_dataset", "b,c"});
  const std::string words = join(translate("eval", with_own, has_all).words, " ");
  EXPECT_EQ(words.find("--dataset"), std::string::npos) << words;
  EXPECT_NE(words.find("--val_dataset b c"), std::string::npos) << words;
}

TEST(Translate, AnswersOfLlamaFactoryAreDrawnWhereTheyAreGenerated) {
  const Words factory = {"--model_name_or_path", "m",    "--stage",    "sft",
                         "--finetuning_type",    "lora", "--do_train", "true"};
  const std::string drawn =
      "--max_new_tokens 1024 --temperature 0.95 --top_p 0.7 --top_k 50 --skip_special_tokens true";
  const auto with = [&](Words words) {
    words.insert(words.begin(), factory.begin(), factory.end());
    return join(translate("sft", words, has_all).words, " ");
  };
  EXPECT_EQ(with({}).find("--temperature"), std::string::npos);
  EXPECT_NE(with({"--predict_with_generate", "true"}).find(drawn), std::string::npos);
  EXPECT_NE(with({"--predict_with_generate", "true", "--do_sample", "true"}).find(drawn), std::string::npos);
  EXPECT_NE(with({"--predict_with_generate", "true", "--do_sample", "false"}).find("--temperature 0 "),
            std::string::npos);
}

TEST(Translate, WhatARowSaysIsRefusedWithItsCure) {
  EXPECT_NE(refusal_of({"--enable_thinking", "false"}).find("\"chat_template_kwargs\": {\"enable_thinking\": false}"),
            std::string::npos);
  EXPECT_EQ(words_of({"--enable_thinking", "true"}), "");
}

TEST(Translate, LlavaAndMiniCpmSayWhatIsTrainedInTheirWords) {
  const std::string llava =
      words_of({"--model_name_or_path", "m", "--tune_mm_mlp_adapter", "True", "--data_path", "d.json", "--image_folder",
                "i", "--bf16", "True", "--model_max_length", "2048", "--evaluation_strategy", "no"});
  EXPECT_TRUE(
      llava.starts_with("--model m --freeze_llm true --freeze_vit true --freeze_aligner false --dataset d.json "
                        "--media_dir i --torch_dtype "
                        "bfloat16 --max_length 2048 --eval_strategy no "))
      << llava;
  const std::string minicpm =
      words_of({"--model_name_or_path", "m", "--llm_type", "qwen", "--tune_vision", "true", "--tune_llm", "false",
                "--data_path", "d", "--max_slice_nums", "9", "--fp16", "true", "--bf16", "false"});
  EXPECT_TRUE(minicpm.starts_with("--model m --freeze_vit false --freeze_llm true --dataset d --torch_dtype float16 "))
      << minicpm;
}

TEST(Translate, WhatIsGivenBesideTheVerbMakesNoDifferenceThere) {
  const auto few = [](const std::string& name) { return name == "model" || name == "max_new_tokens"; };
  const Translation found = translate(
      "infer", {"--model", "m", "--infer_backend", "vllm", "--vllm_max_model_len", "8192", "--lora_rank", "8"}, few);
  EXPECT_EQ(join(found.words, " "), "--model m");
  EXPECT_EQ(found.notices().size(), 3U);
}

TEST(Translate, DefaultsOfAStackAreToldTogetherAndDescribeNoAdapterThatIsGoneOnWith) {
  const Words begins = {"--model_name_or_path", "m", "--stage", "sft", "--dataset", "d"};
  const Translation fresh = translate("sft", begins, has_all);
  EXPECT_TRUE(fresh.unsaid.contains("--lora_alpha"));
  EXPECT_TRUE(fresh.unsaid.contains("--freeze_vit"));
  EXPECT_FALSE(fresh.unsaid.contains("--dataset"));
  const auto told = fresh.notices();
  EXPECT_EQ(std::ranges::count_if(told, [](const auto& text) { return text.ends_with("where nothing is said"); }), 2)
      << join(told, "\n");  // one is of films
  Words goes_on = begins;
  goes_on.insert(goes_on.end(), {"--adapter_name_or_path", "a"});
  for (const auto& own : translate("sft", goes_on, has_all).unsaid) EXPECT_FALSE(own.starts_with("--lora_")) << own;
  goes_on.insert(goes_on.end(), {"--lora_rank", "4"});
  EXPECT_NE(words_of(goes_on).find("--lora_rank 4"), std::string::npos) << "what is said stays";
}

TEST(Translate, RowsAreCountedBehindTheFileThatHasThem) {
  EXPECT_TRUE(refusal_of({"--model", "m", "--train_dataset_sample", "7"}).ends_with(" | --dataset FILE#7"));
  EXPECT_TRUE(refusal_of({"--model", "m", "--val_dataset_sample", "7"}).ends_with(" | --val_dataset FILE#7"));
}

// The names were taken from the stacks' argument classes, whole.
TEST(FlagTable, KnowsEachFlagOfEachStack) {
  const std::vector<std::pair<const char*, Stack>> lists = {
      {"ms_swift", Stack::kSwift}, {"trainer", Stack::kTrainer}, {"llama_factory", Stack::kLlamaFactory}};
  for (const auto& [list, stack] : lists) {
    std::ifstream in(std::filesystem::path(LOCKSTEP_FIXTURES) / "flags" / (std::string(list) + ".txt"));
    size_t count = 0;
    for (std::string name; in >> name; ++count)
      EXPECT_NE(FlagTable::own().find(stack, "sft", name), nullptr) << list << " " << name;
    EXPECT_GT(count, 100U) << list;
  }
}

TEST(FlagTable, EachRuleIsThere) {
  for (const auto& name : FlagTable::own().names()) {
    for (const Stack stack : kStacks) {
      const FlagRow* row = FlagTable::own().find(stack, "sft", name);
      if (row == nullptr || row->effect != FlagEffect::kRule) continue;
      EXPECT_NE(rule_named(row->target), nullptr) << name << ": " << row->target;
    }
  }
}

TEST(FlagTable, RefusesLinesThatAreNone) {
  for (const char* text : {"swift | truth | a", "swift | thing | a | own", "swift | word | a | as",
                           "swift | word | a | none", "swift | word | a | own\nswift | word | a | own"}) {
    EXPECT_THROW(FlagTable{text}, Error) << text;
  }
}

TEST(LiteralFrom, ReadsJsonAndPython) {
  EXPECT_EQ(literal_from("{'a': (1, 2), 'b': True, 3: None}").dump(), R"({"a":[1,2],"b":true,"3":null})");
  EXPECT_TRUE(literal_from("it's none").is_discarded());
  EXPECT_EQ(literal_from("{'a': 'say \"x\"'}").dump(), R"({"a":"say \"x\""})");
}

TEST(Translate, WhatCountsForNothingBesideAnotherWordIsNotRefused) {
  EXPECT_EQ(words_of({"--model", "m", "--do_sample", "false", "--temperature", "0.3"}, "infer"),
            "--model m --temperature 0");
  EXPECT_EQ(words_of({"--model", "m", "--do_sample", "true", "--temperature", "0.3"}, "infer"),
            "--model m --temperature 0.3");
  const auto told = translate("sft", {"--model", "m", "--warmup_steps", "0", "--warmup_ratio", "0.5"}, has_all);
  EXPECT_EQ(join(told.notices(), " ").find("there is no warm-up"), std::string::npos);
}

TEST(Translate, WordsOfScriptsThatWereMisread) {
  const auto has = [](const std::string& words, const std::string& part) {
    return (words + " ").find(part + " ") != std::string::npos;
  };
  const auto of = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--model_name_or_path", "m"});
    return words_of(more);
  };
  const std::string internvl = of({"--freeze_llm", "True", "--freeze_backbone", "True", "--freeze_mlp", "False"});
  EXPECT_TRUE(has(internvl, "--freeze_vit true") && has(internvl, "--freeze_aligner false")) << internvl;
  const std::string minicpm = of({"--llm_type", "qwen2", "--use_lora", "true", "--tune_llm", "false"});
  EXPECT_TRUE(has(minicpm, "--target_regex llm\\..*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj)")) << minicpm;
  EXPECT_TRUE(has(words_of({"--model", "m", "--torch_dtype", "auto", "--bf16", "true"}), "--torch_dtype bfloat16"));
  const std::string lf = of({"--stage", "sft", "--bf16", "true", "--infer_dtype", "float16"});
  EXPECT_TRUE(has(lf, "--torch_dtype bfloat16")) << lf;
  EXPECT_TRUE(has(of({"--stage", "sft", "--lora_target", "q_proj", "v_proj"}), "--target_modules q_proj v_proj"));
  EXPECT_TRUE(
      has(words_of({"--model", "m", "--truncation_strategy", "truncation_left"}), "--truncation_strategy left"));
  EXPECT_EQ(words_of({"--model", "m", "--lora_dtype", "AUTO"}), "--model m");
  EXPECT_TRUE(has(words_of({"--model", "m", "--lora_dtype", "fp32"}), "--lora_dtype float32"));
  EXPECT_TRUE(has(words_of({"--model", "m", "--deepspeed", "zero3-my.json"}), "--deepspeed zero3-my.json"));
}

TEST(Translate, LengthsOfAnswersDoNotCutRows) {
  const std::vector<std::string> lf{"--model_name_or_path", "m", "--stage", "sft"},
      trainer{"--model_name_or_path", "m"};
  for (std::vector<std::string> words : {lf, trainer}) {
    if (words == lf) words.insert(words.end(), {"--max_length", "12"});
    words.insert(words.end(), {"--generation_max_length", "12"});
    EXPECT_EQ(words_of(words).find("_length 12 "), std::string::npos) << words_of(words);
  }
  EXPECT_NE(words_of({"--model_name_or_path", "m", "--max_length", "12"}).find("--max_length 12"), std::string::npos);
}

TEST(Translate, StepsOfEvaluationAreThoseThatAreLoggedWhereTheTrainerIsAsked) {
  const auto eval_steps = [](const std::vector<std::string>& more) {
    std::vector<std::string> words{"--model_name_or_path", "m"};
    words.insert(words.end(), more.begin(), more.end());
    const std::string all = words_of(words);
    const size_t at = all.find("--eval_steps ");
    return at == std::string::npos ? "" : all.substr(at, all.find(' ', at + 13) - at);
  };
  EXPECT_EQ(eval_steps({"--eval_strategy", "steps", "--logging_steps", "5"}), "--eval_steps 5");
  EXPECT_EQ(eval_steps({"--evaluation_strategy", "steps"}), "--eval_steps 500");
  EXPECT_EQ(eval_steps({"--eval_strategy", "steps", "--eval_steps", "7", "--logging_steps", "5"}), "--eval_steps 7");
  EXPECT_EQ(eval_steps({"--eval_strategy", "epoch"}), "");
  EXPECT_EQ(words_of({"--model", "m", "--eval_strategy", "steps"}).find("--eval_steps"), std::string::npos)
      << "ms-swift";
}

TEST(Translate, AnEmptySystemMessageIsToldOf) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--model", "m", "--system", ""},
        {"--model_name_or_path", "m", "--stage", "sft", "--default_system", ""}}) {
    const auto all = translate("sft", words, has_all);
    EXPECT_EQ(std::ranges::count(all.words, "--system"), 0);
    EXPECT_NE(join(all.notices(), "\n").find("the one that the chat template writes by itself"), std::string::npos);
  }
}

TEST(Translate, TheOrderOfALoaderIsToldWhereMsSwiftWouldDrawItOnce) {
  const auto all = translate("sft", {"--model", "m", "--train_dataloader_shuffle", "false"}, has_all);
  EXPECT_EQ(join(all.words, " "), "--model m --dataset_shuffle false");
  EXPECT_NE(join(all.notices(), "\n").find("which ms-swift draws once"), std::string::npos);
  EXPECT_EQ(words_of({"--model", "m", "--train_dataloader_shuffle", "true"}), "--model m --dataset_shuffle true");
}

TEST(Translate, ADefaultOfTheStackGivesWayToAWordOfLocksteps) {
  const std::string words =
      words_of({"--model_name_or_path", "m", "--mm_projector_type", "linear", "--freeze_aligner", "true"});
  EXPECT_NE(words.find("--freeze_aligner true"), std::string::npos) << words;
  EXPECT_EQ(words.find("--freeze_aligner false"), std::string::npos) << words;
}

TEST(Translate, SaysNoAsItWasWritten) {
  const auto notices =
      translate("sft", {"--model_name_or_path", "m", "--stage", "sft", "--no_freeze_vision_tower"}, has_all).notices();
  EXPECT_TRUE(std::ranges::any_of(notices, [](const std::string& text) {
    return text.starts_with("--no_freeze_vision_tower is --freeze_vit false");
  })) << join(notices, "\n");
}

}  // namespace
}  // namespace lockstep
