#include "lockstep/text/chat_template.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/text/chat_spans.h"

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

TEST(ChatTemplate, CallsAreTrainedWithTheWordsBeforeThem) {
  // Written otherwise when others follow, as where thinking is stripped: the whole is probed by the last call's name.
  const std::string calls =
      "{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]{% endfor "
      "%}<end>";
  const std::string prompt = "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
  const ChatTemplate plain("{% for m in messages %}<{{ m.role }}>" + calls + prompt);
  const ChatTemplate stripping(
      "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last %}(think){% endif %}" + calls +
      prompt);
  const auto call = [](const char* name) {
    return Json{{"type", "function"}, {"function", {{"name", name}, {"arguments", {{"x", 1}}}}}};
  };
  const Json talk = {{{"role", "user"}, {"content", "a"}},
                     {{"role", "assistant"}, {"content", "b"}, {"tool_calls", {call("f"), call("g")}}},
                     {{"role", "tool"}, {"content", "c"}},
                     {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call("h")})}},
                     {{"role", "tool"}, {"content", "d"}},
                     {{"role", "assistant"}, {"content", "e"}}};
  const std::string first = "[b[f {\"x\": 1}][g {\"x\": 1}]<end>][[h {\"x\": 1}]<end>]";
  EXPECT_EQ(join_spans(plain.render_spans(talk), true), first + "[e<end>]");
  EXPECT_EQ(join_spans(stripping.render_spans(talk), true), first + "[(think)e<end>]");
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

TEST(ChatTemplate, LoadPrefersTheProcessorsFilesThenTheRawOneThenTheTokenizers) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "chat_template_test";
  std::filesystem::create_directories(dir);
  write_text(dir / "tokenizer_config.json", R"({"chat_template": null})");
  EXPECT_FALSE(ChatTemplate::stands_in(dir));
  write_text(dir / "tokenizer_config.json",
             R"({"chat_template": [{"name": "rag", "template": "x"}, {"name": "default", "template": "config"}]})");
  EXPECT_TRUE(ChatTemplate::stands_in(dir));
  EXPECT_EQ(ChatTemplate::load(dir).source(), "config");
  constexpr auto kTokenizer = ChatTemplate::Reader::kTokenizer;
  write_text(dir / "chat_template.jinja", "raw");
  EXPECT_EQ(ChatTemplate::load(dir).source(), "raw");
  write_text(dir / "chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(ChatTemplate::load(dir).source(), "processor");
  write_text(dir / "processor_config.json", R"({"chat_template": "newest"})");
  EXPECT_EQ(ChatTemplate::load(dir).source(), "newest");
  EXPECT_EQ(ChatTemplate::load(dir, kTokenizer).source(), "raw");
  std::filesystem::remove(dir / "chat_template.jinja");
  EXPECT_EQ(ChatTemplate::load(dir, kTokenizer).source(), "config");
  std::filesystem::remove_all(dir);
  EXPECT_THROW(ChatTemplate::load(dir), UserError);
}

TEST(ChatTemplate, RowsWithToolsHaveATemplateOfTheirOwnWhereATokenizerIsAsked) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "chat_template_tools_test";
  std::filesystem::create_directories(dir / "additional_chat_templates");
  write_text(dir / "tokenizer_config.json",
             R"({"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]})");
  const Json tools = Json::array({Json::object()});
  const auto texts = [&](ChatTemplate::Reader reader) {
    const ChatTemplate chat = ChatTemplate::load(dir, reader);
    return chat.render(Json::array()) + chat.render(Json::array(), {.tools = &tools});
  };
  EXPECT_EQ(texts(ChatTemplate::Reader::kTokenizer), "ab");
  EXPECT_EQ(texts(ChatTemplate::Reader::kProcessor), "aa");
  write_text(dir / "chat_template.jinja", "c");
  EXPECT_EQ(texts(ChatTemplate::Reader::kTokenizer), "cc");
  write_text(dir / "additional_chat_templates/tool_use.jinja", "d");
  EXPECT_EQ(texts(ChatTemplate::Reader::kTokenizer), "cd");
  std::filesystem::remove_all(dir);
}

std::string repeated(std::string_view part, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += part;
  return out;
}

/// The message that a template ends with, of this kind; "" when it renders.
std::string refusal(const std::string& source, ExitCode code) {
  try {
    ChatTemplate(source, "t.jinja").render(kTalk);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), code) << source.substr(0, 80) << ": " << error.what();
    EXPECT_LT(std::string(error.what()).size(), 4096U) << source.substr(0, 80);
    return error.message();
  }
  return "";
}

// Each took minutes, gigabytes or the stack of a thread.
TEST(ChatTemplate, HostileTemplatesEndWithTheirOwnError) {
  const std::string in_a_macro = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}";
  const std::vector<std::string> sources = {
      in_a_macro,
      "{% macro f(x) %}{% call f(x) %}{{ caller() }}{% endcall %}{% endmacro %}{{ f(1) }}",
      "{% macro f(x) %}{% for i in [1] %}{% if f(x) %}{% endif %}{% endfor %}{% endmacro %}{{ f(1) }}",
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
      "{{ 'a' * 10**12 }}",
      "{{ 10**12 * 'a' }}",
      "{{ [1] * 10**12 }}",
      "{{ ((('a' * 10**4) * 10**4) * 10**4) }}",
      "{{ '%999999999d' % 1 }}",
      "{{ '%.999999999f' % 1.5 }}",
      "{{ '%-999999s' % 'x' * 999 }}",
      "{{ 'x'.ljust(10**11) }}{{ 'x'.center(10**11) }}",
      "{{ 'x'|center(10**11) }}",
      "{{ 'x'|indent(10**11, true) }}",
      "{{ [1, 2]|tojson(indent=10**11) }}",
      "{{ [1]|batch(10**11, 0)|list }}",
      "{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}",
      "{{ ('a' * 10**6).replace('', 'b' * 10**6) }}",
      "{{ (['a'] * 10**5)|join('b' * 10**6) }}",
      "{{ ('b' * 10**6).join(['a'] * 10**5) }}",
      "{{ ('a' * 10**6 ~ 'b') in ('a' * 10**7) }}",
      "{{ ('a' * 10**7).count('a' * 10**6 ~ 'b') }}",
      "{% set n = namespace(a=[]) %}{% for i in range(99999) %}{% set n.a = [n.a] %}{% endfor %}{{ n.a }}",
      "{% set n = namespace(a=1) %}{% for i in range(99999) %}{% set n.a = {1: n.a}.items %}{% endfor %}",
      "{% set n = namespace(a='a') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
      "{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a }}",
      "{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor %}{{ n.a|tojson }}",
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] "
      "%}"
      "{% endfor %}{{ n.a == n.b }}",
      "{{ 'a'|map(" + repeated("'map',", 40'000) + "'upper')|list }}",
      "{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}",
      "{{ " + repeated("[", 4000) + "1" + repeated("]", 4000) + " }}",
      "{{ " + repeated("not ", 30'000) + "1 }}",
      "{{ " + repeated("- ", 30'000) + "1 }}",
      "{{ 1" + repeated("|abs", 30'000) + " }}",
      "{{ a" + repeated(".a", 30'000) + " }}",
      "{{ 1" + repeated(" ~ 1", 30'000) + " }}",
      "{{ 1" + repeated(" if 1 else 1", 10'000) + " }}",
      repeated("{% if 1 %}", 10'000) + repeated("{% endif %}", 10'000),
      "{% if 1 %}" + repeated("{% elif 1 %}", 10'000) + "{% endif %}",
      "{% set " + repeated("(", 100'000) + "a" + repeated(")", 100'000) + " = 1 %}",
      repeated("x", 1 << 20),
  };
  for (const std::string& source : sources) {
    EXPECT_NE(refusal(source, ExitCode::kCheckpoint), "") << source.substr(0, 80);
  }
  EXPECT_EQ(refusal(in_a_macro, ExitCode::kCheckpoint).find("t.jinja: RecursionError: the template nests"), 0U);
}

TEST(ChatTemplate, WrongNumbersAreErrorsOfTheTemplateAsInPython) {
  for (const char* source : {"{{ 'x'|int(0, 1) }}", "{{ '%d' % 1e300 }}", "{{ '%+-d' % 1 }}", "{{ '%.5d' % 1 }}",
                             "{{ (-9223372036854775807 - 1)|abs }}", "{{ 2 ** 64 }}", "{{ 1 % 0 }}"}) {
    EXPECT_NE(refusal(source, ExitCode::kData), "") << source;
  }
  EXPECT_EQ(ChatTemplate("{{ 1 ** 10 ** 18 }} {{ 0 ** 99 }} {{ (-1) ** (10 ** 18 + 1) }}").render(kTalk), "1 0 -1");
  EXPECT_EQ(ChatTemplate("{{ 'abc'[::9223372036854775807] }}{{ 'abc'[::-9223372036854775807] }}").render(kTalk), "ac");
  EXPECT_EQ(ChatTemplate("{{ range(9223372036854775800, 9223372036854775807, 100)|length }}").render(kTalk), "1");
  EXPECT_EQ(ChatTemplate("{{ 1e300|int }} {{ 'x'.ljust(-9223372036854775807) }}").render(kTalk), "0 x");
}

// Namespaces in a chain longer than any stack, and in a ring, are destroyed all the same.
TEST(ChatTemplate, NamespacesMayHoldEachOther) {
  const ChatTemplate chat(
      "{% set n = namespace(a=1) %}{% for i in range(50000) %}{% set n.a = namespace(a=n.a) %}{% endfor %}"
      "{% set n.me = n %}{% for i in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}");
  EXPECT_EQ(chat.render(kTalk), "TrueTrue");
}

TEST(ChatTemplate, ALongConversationIsNoHostileTemplate) {
  Json talk = Json::array();
  for (int i = 0; i < 4000; ++i)
    talk.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(2000, 'x')}});
  const ChatTemplate chat(read_text(kFixtures / "chat" / "qwen2.jinja"));
  EXPECT_GT(chat.render(talk).size(), 8'000'000U);
}

TEST(ChatTemplate, WhatALongConversationCostsIsItsOwnFault) {
  const ChatTemplate chat("{{ 'a' * 10**12 }}", "t.jinja");
  EXPECT_NE(refusal("{{ 'a' * 10**12 }}", ExitCode::kCheckpoint), "");
  try {
    (void)chat.render({{{"role", "user"}, {"content", std::string(5 << 20, 'x')}}});
    ADD_FAILURE() << "it was rendered";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
  }
}

// Each answer renders what stands before it: 10,000 turns took minutes.
TEST(ChatTemplate, AnswersOfAnEndlessConversationAreRefused) {
  const ChatTemplate chat(read_text(kFixtures / "chat" / "qwen2.jinja"));
  const RenderMessages render = [&](const Json& part, bool prompt) {
    return chat.render(part, {.add_generation_prompt = prompt});
  };
  const auto talk = [](int turns) {
    Json out = Json::array();
    for (int i = 0; i < turns; ++i) out.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", "x"}});
    return out;
  };
  const Json some = talk(20);
  const std::string whole = render(some, false);
  EXPECT_EQ(find_spans(whole, some, render, {}, 210), chat.render_spans(some)) << "1 + 2 + … + 20 turns";
  int rendered = 0;
  const auto refused = [&](const Json& messages, size_t most, const std::vector<bool>& learnt) {
    const RenderMessages counted = [&](const Json& part, bool prompt) {
      ++rendered;
      return render(part, prompt);
    };
    try {
      (void)find_spans(render(messages, false), messages, counted, learnt, most);
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
      return true;
    }
    return false;
  };
  EXPECT_TRUE(refused(some, 209, {})) << "known before anything is rendered";
  EXPECT_TRUE(refused(talk(10'000), kMostRendered, {}));
  EXPECT_EQ(rendered, 0);
  std::vector<bool> last(10'000);
  last.back() = true;
  EXPECT_FALSE(refused(talk(10'000), kMostRendered, last));
}

TEST(ChatTemplate, TodayIsKnown) {
  EXPECT_EQ(ChatTemplate("{{ strftime_now('%Y-%m-%d')|length }}").render(kTalk), "10");
}

}  // namespace
}  // namespace lockstep
