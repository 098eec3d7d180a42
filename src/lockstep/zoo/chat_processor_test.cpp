// What the processors make of conversations, with the tokenizers and templates of the recorded checkpoints.
#include "lockstep/zoo/chat_processor.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/zoo/test_conversation.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the rows of these tests
namespace fs = std::filesystem;

int32_t image_token(const std::string& name) {
  return static_cast<int32_t>(HfConfig::load(checkpoint(name)).integer("image_token_index"));
}

std::string image_path() { return (fs::path(LOCKSTEP_FIXTURES) / "oracle/seed1/llava/media/a.png").string(); }

TEST(TextProcessor, TrainsOnAnswersUpToTheTurnsEndAndNotOnTheLineBreakBehind) {
  const auto processor = processor_of("seed1/qwen2");
  const auto features = processor->train_features(
      conversation({{"user", "What is it?"}, {"assistant", "A rose."}, {"user", "And that?"}, {"assistant", "A fox."}}),
      {});
  EXPECT_EQ(text_of_labels(*processor, features), "A rose.<|im_end|>A fox.<|im_end|>");
  ASSERT_EQ(features.labels.size(), features.input_ids.size());
  EXPECT_EQ(features.labels.back(), -100);
  EXPECT_EQ(processor->tokenizer().decode(features.input_ids),
            "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
            "assistant.<|im_end|>\n<|im_start|>user\nWhat is it?<|im_end|>\n"
            "<|im_start|>assistant\nA rose.<|im_end|>\n<|im_start|>user\nAnd that?<|im_end|>\n"
            "<|im_start|>assistant\nA fox.<|im_end|>\n");
}

TEST(ChatProcessor, ARowsLeastPixelsAreRefusedWhereNoPictureHeedsThem) {
  const auto processor = processor_of("seed1/llava");
  Sample row = conversation({{"user", "<image>What?"}, {"assistant", "A rose."}}, {image_path()});
  row.min_pixels = 1000000;
  EXPECT_NE(message_of([&] { processor->train_features(row, {}); }).find("train.jsonl:17: expected"),
            std::string::npos);
  row.min_pixels = 0;
  row.max_pixels = 1000000;
  EXPECT_EQ(message_of([&] { processor->train_features(row, {}); }), "nothing was thrown");
}

TEST(ImageProcessor, PutsPicturesIntoTextsAsTheirTemplateWould) {
  for (const char* const family : {"seed1/llava", "odd/qwen2_5_vl", "odd/internvl"}) {
    SCOPED_TRACE(family);
    const auto processor = processor_of(family);
    const auto row = conversation({{"assistant", "A <image> in a text."}}, {image_path()});
    const ProcessOptions all{.taught = Taught::from_flag("all"), .use_chat_template = false};
    const auto plain = processor->train_features(row, all);
    const auto chat =
        processor->train_features(conversation({{"user", "A <image> in a text."}, {"assistant", "a"}}, {image_path()}),
                                  {.taught = Taught::from_flag("all")});
    ASSERT_EQ(plain.media.size(), chat.media.size());
    EXPECT_EQ(plain.media[0].shape, chat.media[0].shape);
    EXPECT_EQ(plain.media[0].places.size(), chat.media[0].places.size());
    for (const int32_t place : plain.media[0].places) EXPECT_EQ(plain.labels[static_cast<size_t>(place)], -100);
    const std::string text = processor->tokenizer().decode(plain.input_ids);
    EXPECT_NE(text.find("in a text."), std::string::npos) << text;
    EXPECT_EQ(text.find("assistant"), std::string::npos) << text;
    if (std::string_view(family).ends_with("qwen2_5_vl")) {
      EXPECT_TRUE(text.starts_with("A <|vision_start|><|image_pad|>")) << text;
      EXPECT_NE(text.find("<|image_pad|><|vision_end|> in a text."), std::string::npos) << text;
    }
  }
}

TEST(TextProcessor, LeavesAMessageOutOfTheLabelsWhenItsLossIsOff) {
  const auto processor = processor_of("seed1/qwen2");
  const auto features = processor->train_features(
      conversation({{"user", "a"}, {"assistant", "b", false}, {"user", "c"}, {"assistant", "d"}}), {});
  EXPECT_EQ(text_of_labels(*processor, features), "d<|im_end|>");
}

TEST(TextProcessor, ALastRoundThatAloneIsLearntIsCutLastByTurns) {
  const auto processor = processor_of("seed1/qwen2");
  const std::string words = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen. ";
  const Sample talk = conversation({{"user", words + words},
                                    {"assistant", words},
                                    {"user", words},
                                    {"assistant", words + words},
                                    {"user", "Now?"},
                                    {"assistant", "A rose and a fox and a tree."}});
  ProcessOptions options{.truncation = Truncation::kTurns, .taught = Taught::from_flag("last_round")};
  const Features whole = processor->train_features(talk, options);
  EXPECT_EQ(text_of_labels(*processor, whole), "A rose and a fox and a tree.<|im_end|>");
  EXPECT_EQ(whole.input_ids, processor->train_features(talk, {}).input_ids);
  options.max_length = 60;
  const Features cut = processor->train_features(talk, options);
  EXPECT_EQ(text_of_labels(*processor, cut), "A rose and a fox and a tree.<|im_end|>");
  EXPECT_LE(cut.input_ids.size(), 60U);
  EXPECT_GT(cut.input_ids.size(), 56U) << "what is left goes to the turn before";
}

TEST(TextProcessor, LearnsTheTokensThatLossScaleNames) {
  const auto processor = processor_of("seed1/qwen2");
  const Sample talk = conversation({{"user", "a"},
                                    {"assistant", "b"},
                                    {"user", "c"},
                                    {"assistant", "<think>\n\n</think>\n\nd"},
                                    {"assistant", "e"}});
  const auto learnt = [&](const std::string& words) {
    const Features features = processor->train_features(talk, {.taught = Taught::from_flag(words)});
    EXPECT_EQ(features.input_ids, processor->train_features(talk, {}).input_ids) << words;
    return text_of_labels(*processor, features);
  };
  EXPECT_EQ(learnt("default"), "b<|im_end|><think>\n\n</think>\n\nd<|im_end|>e<|im_end|>");
  EXPECT_EQ(learnt("last_round"), "<think>\n\n</think>\n\nd<|im_end|>e<|im_end|>");
  EXPECT_EQ(learnt("last_answer"), "e<|im_end|>");
  EXPECT_EQ(learnt("ignore_empty_think"), "b<|im_end|>d<|im_end|>e<|im_end|>");
  EXPECT_EQ(learnt("last_round+ignore_empty_think"), "d<|im_end|>e<|im_end|>");
  EXPECT_EQ(learnt("all"), processor->tokenizer().decode(processor->train_features(talk, {}).input_ids));
  for (const char* wrong : {"react", "all+last_round", "last_answer+last_round", ""})
    EXPECT_THROW((void)Taught::from_flag(wrong), UserError);
  Sample off = talk;
  off.messages[1].trained = false;
  EXPECT_NE(message_of([&] {
              processor->train_features(off, {.taught = Taught::from_flag("all")});
            }).find("train.jsonl:17: messages[1]: expected no \"loss\": false beside --loss_scale all"),
            std::string::npos);
}

TEST(ImageProcessor, LearnsAllButPictures) {
  const auto processor = processor_of("seed1/llava");
  const Sample seen = conversation({{"user", "<image>What?"}, {"assistant", "red"}}, {image_path()});
  const Features features = processor->train_features(seen, {.taught = Taught::from_flag("all")});
  const int32_t picture = image_token("seed1/llava");
  for (size_t i = 1; i < features.labels.size(); ++i) {  // nothing stands before the first, to predict it
    EXPECT_EQ(features.labels[i], features.input_ids[i] == picture ? -100 : features.input_ids[i]);
  }
}

TEST(TextProcessor, GivesTheRunsSystemMessageToRowsThatHaveNone) {
  const auto processor = processor_of("seed1/qwen2");
  const Message system{"system", "Be brief."}, own{"system", "Be long."}, question{"user", "a"},
      answer{"assistant", "b"};
  const ProcessOptions options{.system = "Be brief."};
  const auto ids = [&](const std::vector<Message>& messages, const ProcessOptions& how) {
    const Sample row = conversation(messages);
    return std::pair(processor->train_features(row, how).input_ids, processor->prompt_features(row, how).input_ids);
  };
  EXPECT_EQ(ids({question, answer}, options), ids({system, question, answer}, {}));
  EXPECT_EQ(ids({own, question, answer}, options), ids({own, question, answer}, {}));
  EXPECT_NE(ids({question, answer}, options), ids({question, answer}, {}));
}

TEST(TextProcessor, APromptEndsWhereTheAnswerBegins) {
  for (const char* name : {"seed1/qwen2", "odd/llama"}) {
    const auto processor = processor_of(name);
    const auto sample = conversation({{"user", "What is it?"}, {"assistant", "A rose."}});
    const auto prompt = processor->prompt_features(sample, {}), whole = processor->train_features(sample, {});
    ASSERT_LT(prompt.input_ids.size(), whole.input_ids.size());
    EXPECT_TRUE(std::equal(prompt.input_ids.begin(), prompt.input_ids.end(), whole.input_ids.begin())) << name;
    EXPECT_NE(whole.labels[prompt.input_ids.size()], -100);
    EXPECT_EQ(whole.labels[prompt.input_ids.size() - 1], -100);
    EXPECT_TRUE(prompt.labels.empty());
  }
}

// What is embedded of it, and what an answer goes on from.
// As transformers' tokenizers frame a text: `<s> $A </s>`, `$A </s>`.
TEST(TextProcessor, StopsAtEveryEndThatIsKnown) {
  const auto processor = processor_of("seed1/qwen2");
  const auto stops = processor->stop_tokens();
  const auto end = processor->tokenizer().id_of("<|im_end|>");
  ASSERT_TRUE(end);
  EXPECT_NE(std::find(stops.begin(), stops.end(), *end), stops.end());
}

// As transformers takes them where no generation_config.json says them.
TEST(ImageProcessor, StopsWhereItsLanguageModelDoes) {
  const fs::path folder = fs::path(testing::TempDir()) / "chat_processor_test_stops";
  fs::remove_all(folder);
  fs::copy(checkpoint("seed1/llava"), folder);
  fs::remove(folder / "generation_config.json");
  Json config = read_json(folder / "config.json");
  config["text_config"]["eos_token_id"] = {7, 11};
  const auto stops = [&] {
    fs::remove(folder / "config.json");  // which may not be written to
    write_json(folder / "config.json", config);
    return family_of(HfConfig::load(folder)).processor(folder)->stop_tokens();
  };
  const auto holds = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::ranges::find(ids, id) != ids.end();
  };
  EXPECT_TRUE(holds(stops(), 7) && holds(stops(), 11));
  config["eos_token_id"] = 9;
  EXPECT_TRUE(holds(stops(), 9) && !holds(stops(), 7));
  fs::remove_all(folder);
}

TEST(TextProcessor, RefusesImages) {
  const auto processor = processor_of("seed1/qwen2");
  const auto sample = conversation({{"user", "<image>What?"}, {"assistant", "x"}}, {image_path()});
  const std::string message = message_of([&] { processor->train_features(sample, {}); });
  EXPECT_NE(message.find("train.jsonl:17"), std::string::npos) << message;
  EXPECT_NE(message.find("reads no images"), std::string::npos) << message;
}

TEST(TextProcessor, RefusesARowWithoutAnAnswer) {
  const auto processor = processor_of("seed1/qwen2");
  const std::string message = message_of([&] { processor->train_features(conversation({{"user", "a"}}), {}); });
  EXPECT_NE(message.find("expected an assistant message"), std::string::npos) << message;
}

TEST(TextProcessor, NamesRowTokensAndLimitWhenARowIsTooLong) {
  const auto processor = processor_of("seed1/qwen2");
  const auto sample = conversation({{"user", "What is it?"}, {"assistant", "A rose."}});
  const auto length = processor->train_features(sample, {}).input_ids.size();
  const std::string message = message_of([&] { processor->train_features(sample, {.max_length = 8}); });
  EXPECT_NE(message.find("train.jsonl:17: row is " + std::to_string(length) + " tokens, --max_length is 8"),
            std::string::npos)
      << message;
}

TEST(ImageProcessor, PutsAsManyPlaceholdersAsTheTowerGivesFeatures) {
  const auto processor = processor_of("seed1/llava");
  const auto features = processor->train_features(
      conversation({{"user", "<image>\nWhat is it?"}, {"assistant", "A rose."}}, {image_path()}), {});
  EXPECT_EQ(std::count(features.input_ids.begin(), features.input_ids.end(), image_token("seed1/llava")), 16);
  ASSERT_EQ(features.media.size(), 1U);
  EXPECT_EQ(features.media[0].places.size(), 16U);
  EXPECT_EQ(features.media[0].shape, (std::vector<int64_t>{1, 3, 56, 56}));
  EXPECT_EQ(features.input_ids.front(), 1);  // the post-processor's <s>
  for (size_t i = 0; i < features.input_ids.size(); ++i) {
    EXPECT_TRUE(features.input_ids[i] != image_token("seed1/llava") || features.labels[i] == -100) << i;
  }
}

TEST(ImageProcessor, KeepsTheClassTokensPlaceholderWhereTheTowersClassTokenIsKept) {
  const auto processor = processor_of("odd/llava");  // 40 pixels, patch 8, strategy full
  const auto prompt = processor->prompt_features(conversation({{"user", "<image>What?"}}, {image_path()}), {});
  EXPECT_EQ(std::count(prompt.input_ids.begin(), prompt.input_ids.end(), image_token("odd/llava")), 26);
}

TEST(ImageProcessor, EndsTheLastAnswerWithEosWhereTheTemplateDoesNot) {
  const auto processor = processor_of("seed1/llava");  // its template writes a space and no end token
  const auto features =
      processor->train_features(conversation({{"user", "What is it?"}, {"assistant", "A rose."}}), {});
  EXPECT_EQ(text_of_labels(*processor, features), "A rose.</s>");
  EXPECT_EQ(features.labels.back(), features.input_ids.back());
}

TEST(ImageProcessor, DropsTheLineBreakThatBelongsToTheMark) {
  const auto processor = processor_of("seed1/llava");
  const auto with = processor->prompt_features(conversation({{"user", "<image>\nWhat?"}}, {image_path()}), {});
  const auto without = processor->prompt_features(conversation({{"user", "<image>What?"}}, {image_path()}), {});
  EXPECT_EQ(with.input_ids, without.input_ids);
}

TEST(ImageProcessor, CountsMarksAgainstImages) {
  const auto processor = processor_of("seed1/llava");
  const auto sample = conversation({{"user", "<image><image>What?"}, {"assistant", "x"}}, {image_path()});
  const std::string message = message_of([&] { processor->train_features(sample, {}); });
  EXPECT_NE(message.find("2 mark(s) and 1 image(s)"), std::string::npos) << message;
}

TEST(OwnTokens, AreReadAsOneTokenAndNeverAsText) {
  const Tokenizer tokenizer = Tokenizer::load(checkpoint("seed1/qwen2"));
  EXPECT_EQ(own_token(tokenizer, "<|im_end|>", "preprocessor_config.json"), tokenizer.id_of("<|im_end|>"));
  for (const auto& [text, found] : std::vector<std::pair<std::string, std::string>>{
           {"<|unheard_of|>", "no such token"}, {"\u0120a", "one that it reads as text"}}) {
    const std::string told = message_of([&] { (void)own_token(tokenizer, text, "preprocessor_config.json"); });
    EXPECT_NE(told.find("preprocessor_config.json: expected \"" + text + "\""), std::string::npos) << told;
    EXPECT_NE(told.find("found " + found), std::string::npos) << told;
    EXPECT_NE(told.find("added_tokens.json"), std::string::npos) << told;
  }
}

TEST(OwnTokens, AreKnownBehindOtherWordsWhereATextsBeginningHasAPrefix) {
  const Tokenizer tokenizer = Tokenizer::load(checkpoint("odd/omnilmm"));
  const int32_t patch = own_token(tokenizer, "<im_patch>", "config.json");
  EXPECT_EQ(placeholder_of(tokenizer, patch, "config.json"), "<im_patch>");
}

TEST(OwnTokens, OfAFolderHaveARowOfTheModel) {
  const fs::path dir = checkpoint("seed1/qwen2");
  const int32_t id = token_of_folder(dir, "<|im_end|>", 1 << 20);
  EXPECT_EQ(token_of_folder(dir, "<|im_end|>", id + 1), id);
  const std::string told = message_of([&] { (void)token_of_folder(dir, "<|im_end|>", id); });
  EXPECT_NE(told.find(fmt::format("\"<|im_end|>\" below vocab_size {}, found {}", id, id)), std::string::npos) << told;
  EXPECT_NE(told.find(dir.string()), std::string::npos) << told;
}

}  // namespace
}  // namespace lockstep
