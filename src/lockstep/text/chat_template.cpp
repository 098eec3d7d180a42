#include "lockstep/text/chat_template.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
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

// Where a folder without a file for the template alone may have it.
constexpr std::array kFilesWithTemplate = {"chat_template.json", "tokenizer_config.json"};

// Null where there is none.
Json entry_in(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {};
  const Json file = read_json(path);
  return file.is_object() && file.contains("chat_template") ? file["chat_template"] : Json();
}

// A template as these files hold it: a text, or a list of named ones.
std::optional<std::string> template_in(const std::filesystem::path& path) {
  const Json found = entry_in(path);
  if (found.is_null()) return {};
  if (found.is_string()) return found.get<std::string>();
  const bool list = found.is_array();
  for (const auto& [key, entry] : found.items()) {
    const bool named = list && entry.is_object() && entry.contains("name") && entry["name"] == "default";
    if (named && entry.contains("template") && entry["template"].is_string())
      return entry["template"].get<std::string>();
    if (!list && key == "default" && entry.is_string()) return entry.get<std::string>();
  }
  throw checkpoint_error(
      fmt::format("{}: chat_template: expected a text or a list with a template named \"default\"", path.string()));
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

ChatTemplate ChatTemplate::load(const std::filesystem::path& dir) {
  const auto raw = dir / "chat_template.jinja";
  if (std::filesystem::exists(raw)) return ChatTemplate(read_text(raw), raw.string());
  for (const char* name : kFilesWithTemplate) {
    if (const auto source = template_in(dir / name))
      return ChatTemplate(*source, (dir / name).string() + ": chat_template");
  }
  throw checkpoint_error(
      fmt::format("{}: expected a chat template in chat_template.jinja, chat_template.json or "
                  "tokenizer_config.json, found none",
                  dir.string()),
      "base models have none: take the one of the model's chat version, or learn texts as they are, by `lockstep pt`");
}

bool ChatTemplate::stands_in(const std::filesystem::path& dir) {
  return std::filesystem::exists(dir / "chat_template.jinja") ||
         std::ranges::any_of(kFilesWithTemplate, [&](const char* name) { return !entry_in(dir / name).is_null(); });
}

std::string ChatTemplate::render(const Json& messages, const RenderOptions& options) const {
  // What a conversation weighs as text is what a template may spend many times over.
  size_t input = messages.dump(-1, ' ', false, Json::error_handler_t::replace).size();
  if (options.tools != nullptr) input += options.tools->dump(-1, ' ', false, Json::error_handler_t::replace).size();
  const jinja::Budget budget(input);
  try {
    return impl_->render(messages, options);
  } catch (const jinja::LimitError& e) {
    throw checkpoint_error(fmt::format("{}: {}", impl_->where, e.what()), "take the template of the model's maker");
  } catch (const jinja::TemplateError& e) {
    throw data_error(fmt::format("{}: {}", impl_->where, e.what()), "the conversation does not suit this template");
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

const std::string& ChatTemplate::source() const { return impl_->source; }

}  // namespace lockstep
