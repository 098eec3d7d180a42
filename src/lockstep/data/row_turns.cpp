#include "lockstep/data/row_turns.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/row_fields.h"
#include "lockstep/data/row_tools.h"

namespace lockstep {
namespace {

constexpr std::array kQuestions = {"human", "user"};
constexpr std::array kAnswers = {"assistant", "gpt", "bot"};
// What templates read of a message beside its content.
constexpr std::array kFields = {"reasoning_content", "reasoning", "thinking", "name", "tool_call_id"};
constexpr std::array kLosses = {"loss", "loss_scale", "weight"};

std::string type_of(const Json& part) {
  if (!part.is_object()) return {};
  const auto type = part.find("type");
  return type != part.end() && type->is_string() ? type->get<std::string>() : std::string();
}

/// Parts that are no text or medium, but turns of their own: Anthropic's.
bool holds_blocks(const Json& content) {
  return content.is_array() && std::any_of(content.begin(), content.end(), [](const Json& part) {
           const std::string type = type_of(part);
           return type == "tool_use" || type == "tool_result" || type == "thinking";
         });
}

}  // namespace

bool is_turn_key(const std::string& key) {
  static constexpr std::array kOthers = {"role", "from", "content", "value", "tool_calls"};
  const auto in = [&](const auto& names) { return std::ranges::find(names, key) != names.end(); };
  return in(kOthers) || in(kQuestions) || in(kAnswers) || in(kFields) || in(kLosses);
}

bool asks_to_learn_a_question(const Json& turn, const std::string& key, const Json& value) {
  if (std::ranges::find(kLosses, key) == kLosses.end() || value == false || value == 0) return false;
  const Json* role = find_value(turn, turn.contains("role") ? "role" : "from");
  return role != nullptr && role->is_string() &&
         (*role == "system" || std::ranges::find(kQuestions, *role) != kQuestions.end());
}

TurnReader::TurnReader(const std::string& where, RowMedia& media, std::vector<Message>& messages)
    : where_(where), media_(media), messages_(messages) {}
TurnReader::~TurnReader() = default;

bool TurnReader::begins_with_system(const Json& turns, const std::string& name) const {
  if (!turns.is_array() || turns.empty()) throw field_error(where_, name, "a list of turns, at least one", turns);
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!turns[i].is_object())
      throw field_error(where_, fmt::format("{}[{}]", name, i), "an object with role and content", turns[i]);
  }
  const bool roles = turns[0].contains("role") || turns[0].contains("from");
  return roles && role_of(turns[0], fmt::format("{}[0]", name)) == "system";
}

void TurnReader::read(const Json& turns, const std::string& name) {
  const bool roles = turns[0].contains("role") || turns[0].contains("from");
  for (size_t i = 0; i < turns.size(); ++i) {
    const std::string field = fmt::format("{}[{}]", name, i);
    roles ? read_turn(turns[i], field) : read_pair(turns[i], field);
  }
  end_calls();
}

std::string TurnReader::role_of(const Json& turn, const std::string& field) const {
  static const std::map<std::string, std::string> kRoles = {
      {"system", "system"},     {"developer", "system"},       {"user", "user"},
      {"human", "user"},        {"assistant", "assistant"},    {"gpt", "assistant"},
      {"bot", "assistant"},     {"model", "assistant"},        {"chatgpt", "assistant"},
      {"tool", "tool"},         {"tool_response", "tool"},     {"observation", "tool"},
      {"observations", "tool"}, {"function_response", "tool"}, {"function", "tool"},
      {"tool_call", "call"},    {"function_call", "call"},
  };
  const char* key = turn.contains("role") ? "role" : "from";
  const Json* role = find_value(turn, key);
  const std::string name = fmt::format("{}.{}", field, key);
  if (role == nullptr) throw field_error(where_, field, "an object with role (or from)", turn);
  const auto known = role->is_string() ? kRoles.find(role->get<std::string>()) : kRoles.end();
  if (known == kRoles.end())
    throw field_error(where_, name, "system, user (human), assistant (gpt, bot), tool or tool_call", *role);
  return known->second;
}

const Json* TurnReader::content_of(const Json& turn, std::string& field) const {
  const char* key = turn.contains("content") ? "content" : "value";
  field = fmt::format("{}.{}", field, key);
  return find_value(turn, key);
}

void TurnReader::read_turn(const Json& turn, const std::string& field) {
  const std::string role = role_of(turn, field);
  std::string at = field;
  const Json* content = content_of(turn, at);
  if (role == "assistant" && find_value(turn, "tool_calls") != nullptr) return read_assistant(turn, field);
  if (content == nullptr) throw field_error(where_, field, "an object with content (or value)", turn);
  if (role == "call") return add_calls(read_call_turn(*content, where_, at), turn, field);
  if (role == "tool") return read_tool(turn, field);
  if (holds_blocks(*content)) return read_blocks(turn, *content, role, at);
  messages_.push_back(media_.message(role, *content, at));
  keep_fields(turn, Json::object());
  if (role == "assistant") read_loss(turn, field);
}

/// OpenAI's: calls beside a content, which is often null.
void TurnReader::read_assistant(const Json& turn, const std::string& field) {
  std::string at = field;
  const Json* content = content_of(turn, at);
  Json calls = read_tool_calls(turn.at("tool_calls"), where_, field + ".tool_calls");
  if (content != nullptr && holds_blocks(*content))
    throw field_error(where_, at, "calls in tool_calls or in parts of the content, not both", *content);
  messages_.push_back(content == nullptr ? Message{.role = "assistant", .content = ""}
                                         : media_.message("assistant", *content, at));
  Json extra = Json::object();
  if (!calls.empty()) extra["tool_calls"] = std::move(calls);
  keep_fields(turn, std::move(extra));
  read_loss(turn, field);
}

void TurnReader::read_tool(const Json& turn, const std::string& field) {
  std::string at = field;
  const Json* content = content_of(turn, at);
  messages_.push_back(tool_message(*content, at));
  keep_fields(turn, Json::object());
}

/// Text, or parts of text and media; what is neither stands as JSON, as ms-swift has it.
Message TurnReader::tool_message(const Json& content, const std::string& field) {
  const bool parts =
      content.is_array() && !content.empty() &&
      std::all_of(content.begin(), content.end(), [](const Json& part) { return !type_of(part).empty(); });
  if (content.is_string() || parts) return media_.message("tool", content, field);
  return {.role = "tool", .content = python_dumps(content)};
}

/// A turn of role tool_call goes with the assistant's words right before it.
void TurnReader::add_calls(Json calls, const Json& turn, const std::string& field) {
  Message made{.role = "assistant", .content = "", .fields = {}};
  std::swap(messages_.emplace_back(), made);
  read_loss(turn, field);
  Message call = std::move(messages_.back());
  messages_.pop_back();
  const bool joins = !messages_.empty() && messages_.back().role == "assistant" &&
                     messages_.back().trained == call.trained && messages_.back().weight == call.weight;
  if (!joins) messages_.push_back(std::move(call));
  if (!joined_ || joined_end_ != messages_.size()) {
    end_calls();
    const std::string& fields = messages_.back().fields;
    joined_ = std::make_unique<Json>(fields.empty() ? Json::object() : parse_json_or_discard(fields));
    joined_end_ = messages_.size();
  }
  for (auto& one : calls) (*joined_)["tool_calls"].push_back(std::move(one));
}

/// Written once for all turns that join: thousands may.
void TurnReader::end_calls() {
  if (!joined_) return;
  messages_[joined_end_ - 1].fields = joined_->dump();
  joined_.reset();
}

/// Anthropic's: an assistant's words and calls in one turn; results of calls, and words behind them, in a user's.
void TurnReader::read_blocks(const Json& turn, const Json& parts, const std::string& role, const std::string& field) {
  Json words = Json::array(), extra = Json::object();
  const auto flush = [&] {
    if (words.empty()) return;
    messages_.push_back(media_.message(role, words, field));
    words = Json::array();
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string type = type_of(parts[i]), at = fmt::format("{}[{}]", field, i);
    if (type == "tool_use" && role == "assistant") {
      extra["tool_calls"].push_back(read_tool_use(parts[i], where_, at));
    } else if (type == "thinking" && role == "assistant") {
      const Json* text = find_value(parts[i], "thinking");
      if (text == nullptr || !text->is_string()) throw field_error(where_, at + ".thinking", "text", parts[i]);
      if (!extra.contains("reasoning_content")) extra["reasoning_content"] = "";
      extra["reasoning_content"].get_ref<std::string&>() += text->get_ref<const std::string&>();
    } else if (type == "tool_result" && role == "user") {
      flush();
      const Json* result = find_value(parts[i], "content");
      messages_.push_back(result == nullptr ? Message{.role = "tool", .content = ""}
                                            : tool_message(*result, at + ".content"));
      if (const Json* id = find_value(parts[i], "tool_use_id")) {
        messages_.back().fields = Json{{"tool_call_id", *id}}.dump();
      }
    } else if (type == "tool_use" || type == "tool_result" || type == "thinking") {
      throw field_error(where_, at + ".type",
                        type == "tool_result" ? "such a part in a user's turn" : "such a part in an assistant's turn",
                        type);
    } else {
      if (extra.contains("tool_calls"))
        throw field_error(where_, at, "an assistant's words before its calls", parts[i]);
      words.push_back(parts[i]);
    }
  }
  if (role != "assistant") return flush();
  messages_.push_back(words.empty() ? Message{.role = role, .content = ""} : media_.message(role, words, field));
  keep_fields(turn, std::move(extra));
  read_loss(turn, field);
}

void TurnReader::keep_fields(const Json& turn, Json extra) {
  for (const char* key : kFields) {
    const Json* value = find_value(turn, key);
    if (value != nullptr && !extra.contains(key)) extra[key] = *value;
  }
  if (!extra.empty()) messages_.back().fields = extra.dump();
}

/// ms-swift's "loss": bool and "loss_scale": a number from 0, OpenAI's "weight".
void TurnReader::read_loss(const Json& turn, const std::string& field) {
  constexpr double kMost = 1000;
  Message& message = messages_.back();
  for (const char* key : kLosses) {
    const Json* value = find_value(turn, key);
    if (value == nullptr) continue;
    if (value->is_boolean()) {
      message.trained = value->get<bool>();
      if (std::string_view(key) == "loss" && message.trained) continue;  // how much it counts may stand beside
      return;
    }
    const bool fits = value->is_number() && value->get<double>() >= 0 && value->get<double>() <= kMost;
    if (!fits) throw field_error(where_, fmt::format("{}.{}", field, key), "true, false or a number from 0", *value);
    message.weight = value->get<double>();
    message.trained = message.weight > 0;
    if (!message.trained) message.weight = 1;
    return;
  }
}

/// {"human": question, "assistant": answer}.
void TurnReader::read_pair(const Json& turn, const std::string& field) {
  const char* question = first_name(turn, kQuestions);
  const char* answer = first_name(turn, kAnswers);
  if (question == nullptr || answer == nullptr) {
    throw field_error(where_, field, "role and content, from and value, or human and assistant", turn);
  }
  messages_.push_back(media_.message("user", turn.at(question), fmt::format("{}.{}", field, question)));
  messages_.push_back(media_.message("assistant", turn.at(answer), fmt::format("{}.{}", field, answer)));
  read_loss(turn, field);
}

}  // namespace lockstep
