// conversation.py of an author's folder, of which one text is read and nothing is run.
//
// Example:
//   if (const auto words = system_message_in(dir / "conversation.py", "internlm2-chat")) …
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

/// The system message of a template that the file registers, where it is a plain text:
/// register_conv_template(Conversation(name='…', …, system_message='…', …)). nullopt: there is no file, none that can be read or
/// no such template, or its message is an expression, or holds braces. Never throws for what stands in the file.
/// Source: OpenGVLab/InternVL internvl_chat/internvl/conversation.py.
std::optional<std::string> system_message_in(const std::filesystem::path& file, const std::string& name);

}  // namespace lockstep
