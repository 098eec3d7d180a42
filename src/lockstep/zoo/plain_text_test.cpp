// Texts without a conversation: as they stand, in pieces, and what a tokenizer puts around them.
#include <filesystem>
#include <functional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/zoo/chat_processor.h"
#include "lockstep/zoo/test_conversation.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the rows of these tests
namespace fs = std::filesystem;

TEST(PlainText, LeavesTextsAsTheyAreWithoutAChatTemplate) {
  const auto processor = processor_of("seed1/qwen2");
  const ProcessOptions all{.taught = Taught::from_flag("all"), .use_chat_template = false};
  const auto text = [&](const Features& features) { return processor->tokenizer().decode(features.input_ids); };
  const auto whole = processor->train_features(conversation({{"assistant", " Once upon a time \n"}}), all);
  EXPECT_EQ(text(whole), " Once upon a time \n<|im_end|>") << "blanks too";
  EXPECT_EQ(whole.labels, whole.input_ids);
  EXPECT_EQ(text(processor->train_features(conversation({{"user", "Only a prompt."}}), all)),
            "Only a prompt.<|im_end|>");
  const auto pair =
      processor->train_features(conversation({{"user", "2+2="}, {"assistant", "4"}}), {.use_chat_template = false});
  EXPECT_EQ(text(pair), "2+2=4<|im_end|>");
  EXPECT_EQ(text_of_labels(*processor, pair), "4<|im_end|>");
  EXPECT_EQ(text(processor->prompt_features(conversation({{"user", "2+2="}, {"assistant", "4"}}),
                                            {.use_chat_template = false})),
            "2+2=");
  EXPECT_NE(
      message_of([&] {
        (void)processor->train_features(conversation({{"system", "s"}, {"user", "q"}, {"assistant", "a"}}), all);
      })
          .find("train.jsonl:17: expected a text, or a question and its answer (without a chat template nothing parts "
                "turns), found messages of system, user, assistant"),
      std::string::npos);
}

TEST(PlainText, PiecesOfATextAreItsTokensAndEndOnce) {
  const auto processor = processor_of("seed1/qwen2");
  const ProcessOptions all{.taught = Taught::from_flag("all"), .use_chat_template = false};
  const auto ids = [&](const std::string& text, bool continues, bool goes_on) {
    Sample sample = conversation({{"assistant", text}});
    sample.continues = continues;
    sample.goes_on = goes_on;
    return processor->train_features(sample, all).input_ids;
  };
  auto pieces = ids("Once upon a time", false, true);
  for (const int32_t id : ids(" there was a fox.", true, false)) pieces.push_back(id);
  EXPECT_EQ(pieces, ids("Once upon a time there was a fox.", false, false));
}

TEST(PlainText, WhatCannotBecomeSeveralRowsLosesItsEndWhereLongOnesAreSplit) {
  const auto processor = processor_of("seed1/qwen2");
  const Sample row = conversation({{"user", "2+2="}, {"assistant", "4 and 4 and four more"}});
  const auto ids = [&](Truncation truncation) {
    return processor->train_features(row, {.max_length = 6, .truncation = truncation, .use_chat_template = false})
        .input_ids;
  };
  EXPECT_EQ(ids(Truncation::kSplit).size(), 6U);
  EXPECT_EQ(ids(Truncation::kSplit), ids(Truncation::kRight));
}

TEST(PlainText, PiecesOfAQuestionAndItsAnswerAreItsTokens) {
  const auto processor = processor_of("seed1/qwen2");
  const ProcessOptions all{.taught = Taught::from_flag("all"), .use_chat_template = false};
  Sample begin = conversation({{"user", "What jumps?"}, {"assistant", " The fox"}}),
         end = conversation({{"assistant", " of old."}});
  begin.goes_on = end.continues = true;
  auto ids = processor->train_features(begin, all).input_ids;
  for (const int32_t id : processor->train_features(end, all).input_ids) ids.push_back(id);
  const Features whole =
      processor->train_features(conversation({{"user", "What jumps?"}, {"assistant", " The fox of old."}}), all);
  EXPECT_EQ(ids, whole.input_ids);
  EXPECT_EQ(processor->train_features(begin, all).labels, processor->train_features(begin, all).input_ids);
}

TEST(PlainText, ATextThatNobodyAskedForIsAPromptAsItStands) {
  for (const char* name : {"seed1/qwen2", "odd/llama"}) {
    const auto processor = processor_of(name);
    const Sample sample = conversation({{"assistant", "Cats purr."}});
    const auto expected = processor->tokenizer().encode("Cats purr.", {.add_special_tokens = true});
    for (const ProcessOptions& how : {ProcessOptions{}, {.use_chat_template = false}, {.system = "Be brief."}}) {
      EXPECT_EQ(processor->prompt_features(sample, how).input_ids, expected) << name;
    }
    EXPECT_EQ(expected_response(sample), "") << "there is nothing that it is asked for";
  }
}

TEST(PlainText, WhatStandsAroundATextStaysOnItsSide) {
  const fs::path folder = fs::path(testing::TempDir()) / "chat_processor_test_frame";
  fs::remove_all(folder);
  fs::copy(checkpoint("seed1/qwen2"), folder);
  Json file = read_json(folder / "tokenizer.json");
  const auto words = Tokenizer::load(folder).encode("Cats purr.");
  const int32_t begin = *Tokenizer::load(folder).id_of("<|im_start|>"),
                end = *Tokenizer::load(folder).id_of("<|im_end|>");
  const Sample text = conversation({{"assistant", "Cats purr."}});
  const auto special = [](const char* token) { return Json{{"SpecialToken", {{"id", token}, {"type_id", 0}}}}; };
  for (const std::vector<int32_t>& before : {std::vector<int32_t>{}, std::vector<int32_t>{begin}}) {
    Json single = {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, special("<|im_end|>")};
    if (!before.empty()) single.insert(single.begin(), special("<|im_start|>"));
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", single},
        {"special_tokens", {{"<|im_start|>", {{"ids", {begin}}}}, {"<|im_end|>", {{"ids", {end}}}}}}};
    fs::remove(folder / "tokenizer.json");
    write_json(folder / "tokenizer.json", file);
    const auto processor = family_of(HfConfig::load(folder)).processor(folder);
    std::vector<int32_t> expected = before;
    expected.insert(expected.end(), words.begin(), words.end());
    EXPECT_EQ(processor->prompt_features(text, {}).input_ids, expected) << "an answer goes on from it";
    EXPECT_EQ(processor->prompt_features(text, {.max_length = 99, .ends_texts = true}).input_ids,
              processor->tokenizer().encode("Cats purr.", {.add_special_tokens = true}));
    const auto cut =
        processor->prompt_features(text, {.max_length = 2, .truncation = Truncation::kRight, .ends_texts = true});
    EXPECT_EQ(cut.input_ids, (std::vector<int32_t>{expected.front(), end}));
    expected.push_back(end);
    EXPECT_EQ(processor->train_features(text, {.use_chat_template = false}).input_ids, expected) << "one end";
  }
  fs::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
