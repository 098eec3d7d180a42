#include "lockstep/zoo/tool_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/row_tools.h"

namespace lockstep {
namespace {

constexpr std::string_view kStart = "<|im_start|>", kEnd = "<|im_end|>";

bool mentions(const std::string& source, std::string_view word) { return source.find(word) != std::string::npos; }

bool knows_results(const std::string& source) { return mentions(source, "\"tool\"") || mentions(source, "'tool'"); }

Json fields_of(const Message& message) {
  return message.fields.empty() ? Json::object() : parse_json_or_discard(message.fields);
}

/// What the template says as system where a conversation has no such message; "" where it says nothing.
std::string usual_system(const ChatTemplate& chat) {
  const std::string begin = fmt::format("{}system\n", kStart);
  const std::string text = chat.render(Json::array({{{"role", "user"}, {"content", "a"}}}));
  const size_t from = text.find(begin);
  if (from == std::string::npos) return {};
  const size_t end = text.find(kEnd, from);
  return end == std::string::npos ? "" : text.substr(from + begin.size(), end - from - begin.size());
}

/// Source: the chat template of Qwen2.5-Instruct.
std::string tools_text(const Json& tools) {
  std::string text =
      "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
      "You are provided with function signatures within <tools></tools> XML tags:\n<tools>";
  for (const auto& tool : tools) text += "\n" + python_dumps(tool);
  return text +
         "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
         "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
         "<args-json-object>}\n</tool_call>";
}

void write_calls(Message& message) {
  Json fields = fields_of(message);
  if (!fields.contains("tool_calls")) return;
  for (const auto& call : fields.at("tool_calls")) {
    const Json& function = call.at("function");
    if (!message.content.empty()) message.content += "\n";
    message.content += fmt::format("<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                                   python_dumps(function.at("name")), python_dumps(function.at("arguments")));
  }
  fields.erase("tool_calls");
  message.fields = fields.empty() ? "" : fields.dump();
}

/// Results that follow one another are one turn of the user.
void write_results(std::vector<Message>& messages) {
  std::vector<Message> out;
  bool goes_on = false;
  for (auto& message : messages) {
    if (message.role != "tool") {
      goes_on = false;
      out.push_back(std::move(message));
      continue;
    }
    const std::string text = fmt::format("<tool_response>\n{}\n</tool_response>", message.content);
    if (goes_on) {
      out.back().content += "\n" + text;
    } else {
      out.push_back({.role = "user", .content = text});
    }
    goes_on = true;
  }
  messages = std::move(out);
}

}  // namespace

bool has_tools(const Sample& sample) {
  return !sample.tools.empty() || std::ranges::any_of(sample.messages, [](const Message& message) {
    return message.role == "tool" || message.fields.find("\"tool_calls\"") != std::string::npos;
  });
}

void write_tools(Sample& sample, const ChatTemplate& chat) {
  if (!has_tools(sample)) return;
  const std::string& source = chat.source(!sample.tools.empty());
  const bool tools = mentions(source, "tools"), calls = mentions(source, "tool_calls");
  if (tools && calls) return;
  const bool has_calls = std::ranges::any_of(sample.messages, [](const Message& message) {
    return message.fields.find("\"tool_calls\"") != std::string::npos;
  });
  const bool has_results =
      std::ranges::any_of(sample.messages, [](const Message& message) { return message.role == "tool"; });
  if (tools && !has_calls && !has_results) return;
  if (!mentions(source, kStart)) {
    // A template that writes whatever role it is given may still have a place for results.
    if (sample.tools.empty() && !has_calls) return;
    throw data_error(
        fmt::format("{}: expected a row without {}, as the checkpoint's chat template writes none, found some",
                    sample.where, tools ? "calls of tools or results" : "tools or calls of them"),
        "take a checkpoint whose chat template has tools, or leave such rows out");
  }
  if (!tools && !sample.tools.empty()) {
    auto& messages = sample.messages;
    const std::string text = tools_text(parse_json_or_discard(sample.tools));
    if (messages.empty() || messages.front().role != "system")
      messages.insert(messages.begin(), {.role = "system", .content = usual_system(chat)});
    std::string& system = messages.front().content;
    system += (system.empty() ? "" : "\n\n") + text;
    sample.tools.clear();
  }
  if (!calls) {
    for (auto& message : sample.messages) write_calls(message);
  }
  if (!knows_results(source)) write_results(sample.messages);
}

}  // namespace lockstep
