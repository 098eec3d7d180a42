#include "lockstep/zoo/conversation_file.h"

#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

class ConversationFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(file_); }
  std::optional<std::string> message(const std::string& source, const std::string& name = "internlm2-chat") const {
    write_text(file_, source);
    return system_message_in(file_, name);
  }
  static std::string registered(const std::string& text) {
    return "register_conv_template(Conversation(name='internlm2-chat', system_message=" + text + ", sep='<|im_end|>'))";
  }

  std::filesystem::path file_ = std::filesystem::path(testing::TempDir()) / "conversation_file_test.py";
};

/// As InternVL-Chat-V1-5 has it, and as InternVL2 does, with a message that is commented out.
TEST_F(ConversationFile, TheMessageOfANamedTemplateIsRead) {
  const std::string source = R"(
def register_conv_template(template: Conversation, override: bool = False):
    """Register a new conversation template: register_conv_template(Conversation(name='internlm2-chat'))."""
    conv_templates[template.name] = template

register_conv_template(
    Conversation(
        name='Hermes-2',
        system_template='<|im_start|>system\n{system_message}',
        # system_message='我是书生·万象',
        system_message='Answer the questions.',
        roles=('<|im_start|>user\n', '<|im_start|>assistant\n'),
        sep='<|im_end|>',
        stop_token_ids=[2, 6],
    )
)
register_conv_template(
    Conversation(
        name='internlm2-chat',
        system_template='<|im_start|>system\n{system_message}',
        system_message='You are an AI assistant whose name is InternLM (书生·浦语).',
        roles=('<|im_start|>user\n', '<|im_start|>assistant\n'),
        sep_style=SeparatorStyle.MPT,
        sep='<|im_end|>',
        stop_token_ids=[2, 92543, 92542])
)
)";
  EXPECT_EQ(message(source), "You are an AI assistant whose name is InternLM (书生·浦语).");
  EXPECT_EQ(message(source, "Hermes-2"), "Answer the questions.");
  EXPECT_EQ(message(source, "phi3-chat"), std::nullopt);
}

TEST_F(ConversationFile, WhatIsNoPlainTextIsNotGuessed) {
  EXPECT_EQ(message(registered(R"("It's \"so\".\nYes")")), "It's \"so\".\nYes");
  EXPECT_EQ(message(registered("'''two\nlines'''")), "two\nlines");
  EXPECT_EQ(message(registered("''")), "");
  for (const char* text : {"f'{x}'", "r'raw'", "WORDS", "'a' 'b'", "'a' + b", "('a')", "'\\x41'", "'not closed",
                           "'a\nb'", "'{{ braces }}'", "b'a'", "None", "'''"}) {
    EXPECT_EQ(message(registered(text)), std::nullopt) << text;
  }
  EXPECT_EQ(message("# " + registered("'a'")), std::nullopt);
  EXPECT_EQ(message("\"\"\"" + registered("'a'") + "\"\"\""), std::nullopt);
  EXPECT_EQ(message(""), std::nullopt);
  EXPECT_EQ(message(registered("'a\xFF'")), std::nullopt);
  EXPECT_EQ(message("'\\"), std::nullopt);
  EXPECT_EQ(message(std::string(2 << 20, ' ') + registered("'a'")), std::nullopt);
  std::filesystem::remove(file_);
  EXPECT_EQ(system_message_in(file_, "internlm2-chat"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
