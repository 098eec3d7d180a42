// Chat templates: the Jinja subset that Hugging Face checkpoints use, rendered as transformers renders it
// (trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes, raise_exception, strftime_now, generation
// tags).
//
// Example:
//   const ChatTemplate chat = ChatTemplate::load(dir);   // chat_template.jinja, .json or tokenizer_config.json
//   const std::string prompt = chat.render(messages, {.add_generation_prompt = true});
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "lockstep/base/json.h"

namespace lockstep {

/// A span of rendered text; `trained` where a model should learn to write it.
struct TextSpan {
  std::string text;
  bool trained = false;
  int message = -1;  // whose words are trained; not compared
  bool operator==(const TextSpan& other) const { return text == other.text && trained == other.trained; }
};

struct RenderOptions {
  bool add_generation_prompt = false;
  std::string bos_token, eos_token;                                        // visible to the template
  const std::map<std::string, std::string, std::less<>>* named = nullptr;  // further tokens that it sees: "pad_token"
  const Json* tools = nullptr;                                             // array, or none
  const Json* variables = nullptr;  // object: further variables that a template reads ({"enable_thinking": false})
};

class ChatTemplate {
 public:
  /// Compiles. Throws UserError(kCheckpoint) with line and column for syntax outside the subset.
  explicit ChatTemplate(std::string_view source, std::string where = "chat template");
  /// Finds the template of a checkpoint folder, in the order that transformers does, which is another one for models whose
  /// tokenizer alone is asked. There a template named "tool_use" is for rows with tools. Throws UserError(kCheckpoint).
  enum class Reader : uint8_t { kTokenizer, kProcessor };
  static ChatTemplate load(const std::filesystem::path& dir, Reader reader = Reader::kProcessor);
  /// Whether `load` finds one there, be it right or wrong. Throws UserError(kCheckpoint) for a file that is no JSON.
  static bool stands_in(const std::filesystem::path& dir);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// `messages`: array of {role, content}, content a string or a list of {type: text|image|…}.
  /// Throws UserError(kData) when the template raises an exception (its text is in the message).
  std::string render(const Json& messages, const RenderOptions& options = {}) const;

  /// The whole conversation in spans: what each assistant message adds over its own generation prompt is `trained`.
  /// Found by rendering prefixes; the concatenation equals render(messages). A template that writes an assistant
  /// message differently when others follow (thinking stripped from earlier turns) is probed instead: its span is the
  /// content as it stands in the whole, with the end token behind it. A message that does not show is not trained.
  /// `trained_flags[i]` (optional, by message) switches single assistant messages off.
  std::vector<TextSpan> render_spans(const Json& messages, const RenderOptions& options = {},
                                     const std::vector<bool>& trained_flags = {}) const;

  /// Of rows with tools, or of others: mostly one.
  const std::string& source(bool with_tools = false) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_, for_tools_;  // for_tools_: null where there is one for all
};

}  // namespace lockstep
