#include "lockstep/text/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/text/chat_spans.h"
#include "lockstep/text/jinja/budget.h"
#include "lockstep/text/jinja/interpreter.h"
#include "lockstep/text/jinja/parser.h"

namespace lockstep {
namespace {

// The reasoning of a message goes by three names; a template reads one of them.
// Source: transformers 5 utils/chat_template_utils.py _alias_reasoning_fields.
Json with_reasoning_names(const Json& messages) {
  Json out = messages;
  for (Json& message : out) {
    if (!message.is_object()) continue;
    for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
      const auto found = message.find(name);
      if (found == message.end() || found->is_null()) continue;
      Json renamed = {{"thinking", *found}};
      renamed.update(message);
      renamed["reasoning_content"] = *found;
      message = std::move(renamed);
      break;
    }
  }
  return out;
}

// What a real template is done with whatever stands in it; of a longer one the fault may be its own.
constexpr size_t kAnyConversation = size_t{4} << 20;

constexpr const char* kRawFile = "chat_template.jinja";
constexpr const char* kRawForTools = "additional_chat_templates/tool_use.jinja";  // beside kRawFile
using Reader = ChatTemplate::Reader;

// Where templates stand, what counts first in front. Source: transformers 5.23 processing_utils.py get_processor_dict,
// tokenization_utils_base.py _from_pretrained; the last two of a tokenizer it never reads.
std::vector<const char*> files_of(Reader reader) {
  if (reader == Reader::kProcessor)
    return {"processor_config.json", "chat_template.json", kRawFile, "tokenizer_config.json"};
  return {kRawFile, "tokenizer_config.json", "chat_template.json", "processor_config.json"};
}

// Null where there is none.
Json entry_in(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {};
  if (path.filename() == kRawFile) return read_text(path);
  const Json file = read_json(path);
  return file.is_object() && file.contains("chat_template") ? file["chat_template"] : Json();
}

// Of a list of named ones.
std::optional<std::string> named_in(const Json& entries, std::string_view name) {
  const bool list = entries.is_array();
  for (const auto& [key, entry] : entries.items()) {
    const bool named = list && entry.is_object() && entry.contains("name") && entry["name"] == name;
    if (named && entry.contains("template") && entry["template"].is_string())
      return entry["template"].get<std::string>();
    if (!list && key == name && entry.is_string()) return entry.get<std::string>();
  }
  return std::nullopt;
}

// As these files hold it: a text, or a list of named ones.
std::string default_of(const Json& entries, const std::filesystem::path& path) {
  if (entries.is_string()) return entries.get<std::string>();
  if (auto found = named_in(entries, "default")) return *found;
  throw checkpoint_error(
      fmt::format("{}: chat_template: expected a text or a list with a template named \"default\"", path.string()));
}

std::optional<std::string> of_tools(const Json& entries, const std::filesystem::path& path) {
  if (!entries.is_string()) return named_in(entries, "tool_use");
  const std::filesystem::path beside = path.parent_path() / kRawForTools;
  if (path.filename() != kRawFile || !std::filesystem::exists(beside)) return std::nullopt;
  return read_text(beside);
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source, where;
  jinja::Block block;

  /// Throws TemplateError.
  std::string render(const Json& messages, const RenderOptions& options) const;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string where) : impl_(std::make_unique<Impl>()) {
  impl_->source = source;
  impl_->where = std::move(where);
  impl_->block = jinja::parse_template(source, impl_->where);
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::load(const std::filesystem::path& dir, Reader reader) {
  for (const char* name : files_of(reader)) {
    const std::filesystem::path path = dir / name;
    const Json entries = entry_in(path);
    if (entries.is_null()) continue;
    const std::string where = path.string() + (path.filename() == kRawFile ? "" : ": chat_template");
    ChatTemplate made(default_of(entries, path), where);
    const auto tools = reader == Reader::kTokenizer ? of_tools(entries, path) : std::nullopt;
    if (tools) made.for_tools_ = std::move(ChatTemplate(*tools, where + " tool_use").impl_);
    return made;
  }
  throw checkpoint_error(
      fmt::format("{}: expected a chat template in chat_template.jinja, chat_template.json, processor_config.json or "
                  "tokenizer_config.json, found none",
                  dir.string()),
      "base models have none: take the one of the model's chat version, or learn texts as they are, by `lockstep pt`");
}

bool ChatTemplate::stands_in(const std::filesystem::path& dir) {
  return std::ranges::any_of(files_of(Reader::kTokenizer),
                             [&](const char* name) { return !entry_in(dir / name).is_null(); });
}

std::string ChatTemplate::render(const Json& messages, const RenderOptions& options) const {
  // What a conversation weighs as text is what a template may spend many times over.
  size_t input = messages.dump(-1, ' ', false, Json::error_handler_t::replace).size();
  if (options.tools != nullptr) input += options.tools->dump(-1, ' ', false, Json::error_handler_t::replace).size();
  const jinja::Budget budget(input);
  const Impl& chosen = options.tools != nullptr && for_tools_ ? *for_tools_ : *impl_;
  try {
    return chosen.render(messages, options);
  } catch (const jinja::LimitError& e) {
    const std::string told = fmt::format("{}: {}", chosen.where, e.what());
    if (input > kAnyConversation)
      throw data_error(fmt::format("{} (a conversation of {})", told, format_bytes(static_cast<int64_t>(input))),
                       "part it into several rows");
    throw checkpoint_error(told, "take the template of the model's maker");
  } catch (const jinja::TemplateError& e) {
    throw data_error(fmt::format("{}: {}", chosen.where, e.what()), "the conversation does not suit this template");
  }
}

std::string ChatTemplate::Impl::render(const Json& messages, const RenderOptions& options) const {
  jinja::NamedValues variables = {
      {"messages", jinja::Value::from_json(with_reasoning_names(messages))},
      {"tools", options.tools != nullptr ? jinja::Value::from_json(*options.tools) : jinja::Value()},
      {"documents", jinja::Value()},
      {"add_generation_prompt", options.add_generation_prompt},
  };
  if (!options.bos_token.empty()) variables.emplace_back("bos_token", options.bos_token);
  if (!options.eos_token.empty()) variables.emplace_back("eos_token", options.eos_token);
  if (options.named != nullptr) {
    for (const auto& [name, token] : *options.named) {
      if (name != "bos_token" && name != "eos_token") variables.emplace_back(name, token);
    }
  }
  if (options.variables != nullptr) {
    for (const auto& [name, value] : options.variables->items())
      variables.emplace_back(name, jinja::Value::from_json(value));
  }
  return jinja::Interpreter(variables).render(block);
}

std::vector<TextSpan> ChatTemplate::render_spans(const Json& messages, const RenderOptions& options,
                                                 const std::vector<bool>& trained_flags) const {
  const RenderMessages render_part = [&](const Json& part, bool add_generation_prompt) {
    RenderOptions part_options = options;
    part_options.add_generation_prompt = add_generation_prompt;
    return render(part, part_options);
  };
  return find_spans(render(messages, options), messages, render_part, trained_flags);
}

const std::string& ChatTemplate::source(bool with_tools) const {
  return with_tools && for_tools_ ? for_tools_->source : impl_->source;
}

}  // namespace lockstep
