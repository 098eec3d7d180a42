#include "lockstep/text/chat_template.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

const std::filesystem::path kFixtures = std::filesystem::path(LOCKSTEP_FIXTURES) / "text";

std::vector<Json> read_lines(const std::filesystem::path& path) {
  std::vector<Json> out;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) out.push_back(parse_json(line, path.string()));
  return out;
}

std::string join_spans(const std::vector<TextSpan>& spans, bool only_trained) {
  std::string out;
  for (const TextSpan& span : spans) out += !only_trained ? span.text : span.trained ? "[" + span.text + "]" : "";
  return out;
}

const Json kTalk = Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                                   {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}])");

class Family : public testing::TestWithParam<const char*> {};

TEST_P(Family, RendersAsTransformersDoes) {
  const std::string name = GetParam();
  const ChatTemplate chat(read_text(kFixtures / "chat" / (name + ".jinja")), name);
  for (const Json& row : read_lines(kFixtures / "chat" / (name + ".jsonl"))) {
    RenderOptions options{.add_generation_prompt = row.at("add_generation_prompt").get<bool>(), .eos_token = ""};
    if (name == "llama") options.bos_token = "<|begin_of_text|>";
    if (row.contains("tools")) options.tools = &row.at("tools");
    EXPECT_EQ(chat.render(row.at("messages"), options), row.at("text").get<std::string>());
    EXPECT_EQ(join_spans(chat.render_spans(row.at("messages"), options), false), row.at("text").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, Family, testing::Values("qwen2", "llava", "llama", "qwen2_5_vl"));

// Every row was recorded from Jinja2 with the settings of transformers.
TEST(ChatTemplate, ExpressionsMeanWhatTheyMeanInJinja) {
  for (const Json& row : read_lines(kFixtures / "expressions.jsonl")) {
    const auto source = row.at("template").get<std::string>();
    if (row.value("fails", false)) {
      EXPECT_THROW(ChatTemplate(source).render(Json::array()), UserError) << source;
    } else {
      EXPECT_EQ(ChatTemplate(source).render(Json::array()), row.at("text").get<std::string>()) << source;
    }
  }
}

TEST(ChatTemplate, TemplatesOfManyStylesRenderAsRecorded) {
  for (const Json& row : read_lines(kFixtures / "templates.jsonl")) {
    const ChatTemplate chat(row.at("template").get<std::string>(), row.at("name").get<std::string>());
    RenderOptions options{.add_generation_prompt = true, .bos_token = "<s>", .eos_token = "</s>"};
    if (!row.at("tools").is_null()) options.tools = &row.at("tools");
    if (row.value("fails", false)) {
      EXPECT_THROW(chat.render(row.at("messages"), options), UserError) << row.at("name");
    } else {
      EXPECT_EQ(chat.render(row.at("messages"), options), row.at("text").get<std::string>()) << row.at("name");
    }
  }
}

TEST(ChatTemplate, SpansTrainWhatTheAssistantAdds) {
  const ChatTemplate chat(read_text(kFixtures / "chat" / "qwen2.jinja"));
  EXPECT_EQ(join_spans(chat.render_spans(kTalk), true), "[b<|im_end|>\n][d<|im_end|>\n]");
  EXPECT_EQ(join_spans(chat.render_spans(kTalk, {}, {true, false, true, true}), true), "[d<|im_end|>\n]");
}

// The last assistant turn is written differently, so a prefix is no prefix of the whole.
TEST(ChatTemplate, SpansAreProbedWhereEarlierTurnsAreStripped) {
  const ChatTemplate chat(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}(think){% endif %}"
      "{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto spans = chat.render_spans(kTalk);
  EXPECT_EQ(join_spans(spans, false), "<user>a<end><assistant>b<end><user>c<end><assistant>(think)d<end>");
  EXPECT_EQ(join_spans(spans, true), "[b<end>][(think)d<end>]");
}

TEST(ChatTemplate, WhatTheTemplateRaisesReachesTheUser) {
  const ChatTemplate chat("\n  {{ raise_exception('no ' ~ messages[0].role) }}", "t.jinja");
  try {
    chat.render(kTalk);
    FAIL() << "did not throw";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kData);
    EXPECT_EQ(e.message(), "t.jinja: no user (line 2, column 21 of the template)");
  }
}

TEST(ChatTemplate, SyntaxErrorsNameLineAndColumn) {
  try {
    ChatTemplate("a\n{% if x %}\n{% include 'y' %}", "t.jinja");
    FAIL() << "did not throw";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), ExitCode::kCheckpoint);
    EXPECT_NE(e.message().find("t.jinja: line 3 column 4: expected if, for"), std::string::npos) << e.message();
  }
}

TEST(ChatTemplate, LoadPrefersTheRawFileThenTheProcessorsThenTheTokenizers) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "chat_template_test";
  std::filesystem::create_directories(dir);
  write_text(dir / "tokenizer_config.json",
             R"({"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "config"}]})");
  EXPECT_EQ(ChatTemplate::load(dir).source(), "config");
  write_text(dir / "chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(ChatTemplate::load(dir).source(), "processor");
  write_text(dir / "chat_template.jinja", "raw");
  EXPECT_EQ(ChatTemplate::load(dir).source(), "raw");
  std::filesystem::remove_all(dir);
  EXPECT_THROW(ChatTemplate::load(dir), UserError);
}

TEST(ChatTemplate, TodayIsKnown) {
  EXPECT_EQ(ChatTemplate("{{ strftime_now('%Y-%m-%d')|length }}").render(kTalk), "10");
}

}  // namespace
}  // namespace lockstep
