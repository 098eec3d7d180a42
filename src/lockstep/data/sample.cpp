#include "lockstep/data/sample.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/row_media.h"
#include "lockstep/data/row_tokens.h"

namespace lockstep {

namespace {

constexpr std::array kQueryNames = {"query", "prompt", "question", "problem", "instruction", "input"};
constexpr std::array kResponseNames = {"response", "answer",   "output", "targets",    "target", "answer_key",
                                       "answers",  "solution", "text",   "completion", "content"};

const Json* find_value(const Json& row, const char* name) {
  const auto it = row.find(name);
  return it == row.end() || it->is_null() ? nullptr : &*it;
}

template <size_t N>
const char* first_name(const Json& row, const std::array<const char*, N>& names) {
  for (const char* name : names) {
    if (find_value(row, name) != nullptr) return name;
  }
  return nullptr;
}

/// One row on its way to a Sample: the three forms end in the same messages.
class RowReader {
 public:
  RowReader(const Json& row, const std::string& where, const std::filesystem::path& base_dir)
      : row_(row), where_(where), media_(row, where, base_dir) {
    sample_.where = where;
  }

  Sample read() {
    refuse_what_would_be_lost();
    if (is_token_row(row_)) {
      read_token_row(row_, where_, sample_);
    } else if (find_value(row_, "messages") != nullptr) {
      read_turns("messages");
    } else if (find_value(row_, "conversations") != nullptr) {
      read_turns("conversations");
    } else if (find_value(row_, "conversation") != nullptr) {
      read_turns("conversation");
    } else {
      read_query_response();
    }
    refuse_unfilled_boxes();
    media_.resolve(sample_);
    if (const Json* speech = find_value(row_, "speech")) sample_.speech = speech_of_row(*speech, where_);
    if (const auto metadata = row_.find("metadata"); metadata != row_.end()) sample_.metadata = metadata->dump();
    for (const char* name : {"group", "channel"}) {
      const Json* value = find_value(row_, name);
      if (value == nullptr || !sample_.group.empty()) continue;
      if (value->is_structured()) throw field_error(where_, name, "text", *value);
      sample_.group = value->is_string() ? value->get<std::string>() : value->dump();
    }
    if (const Json* adapter = find_value(row_, "adapter")) {
      sample_.adapter = adapter->is_string() ? adapter->get<std::string>() : adapter->dump();
    }
    if (const Json* id = find_value(row_, "id")) {
      if (id->is_structured()) throw field_error(where_, "id", "text or a number", *id);
      sample_.id = id->is_string() ? id->get<std::string>() : id->dump();
    }
    return std::move(sample_);
  }

 private:
  void refuse_what_would_be_lost() const {
    if (const Json* tools = find_value(row_, "tools");
        tools != nullptr && !tools->empty() && *tools != "" && *tools != "[]") {
      throw field_error(where_, "tools", "no tools (this build trains without tool calls)", *tools);
    }
  }

  void refuse_unfilled_boxes() const {
    const Json* objects = find_value(row_, "objects");
    if (objects == nullptr || objects->empty()) return;
    for (const auto& message : sample_.messages) {
      if (message.content.find("<bbox>") == std::string::npos &&
          message.content.find("<ref-object>") == std::string::npos)
        continue;
      throw field_error(where_, "objects", "no grounding boxes (this build does not fill <bbox> and <ref-object>)",
                        *objects);
    }
  }

  /// The row's own system prompt, unless the turns begin with one.
  void add_system(bool turns_have_one) {
    const Json* system = find_value(row_, "system");
    if (system == nullptr || *system == "" || turns_have_one) return;
    add("system", media_.content_text(*system, "system"));
  }

  void add(std::string role, std::string content) { sample_.messages.push_back({std::move(role), std::move(content)}); }

  void read_turns(const char* name) {
    const Json& turns = row_.at(name);
    if (!turns.is_array() || turns.empty()) throw field_error(where_, name, "a list of turns, at least one", turns);
    const auto field = [&](size_t i) { return fmt::format("{}[{}]", name, i); };
    for (size_t i = 0; i < turns.size(); ++i) {
      if (!turns[i].is_object()) throw field_error(where_, field(i), "an object with role and content", turns[i]);
    }
    if (turns[0].contains("role") || turns[0].contains("from")) {
      add_system(role_of(turns[0], field(0)) == "system");
      for (size_t i = 0; i < turns.size(); ++i) read_turn(turns[i], field(i));
    } else {
      add_system(false);
      for (size_t i = 0; i < turns.size(); ++i) read_pair(turns[i], field(i));
    }
  }

  std::string role_of(const Json& turn, const std::string& field) const {
    static const std::map<std::string, std::string> kRoles = {
        {"system", "system"}, {"user", "user"},          {"human", "user"},       {"assistant", "assistant"},
        {"gpt", "assistant"}, {"bot", "assistant"},      {"model", "assistant"},  {"chatgpt", "assistant"},
        {"tool", "tool"},     {"tool_response", "tool"}, {"observation", "tool"}, {"observations", "tool"},
    };
    const char* key = turn.contains("role") ? "role" : "from";
    const Json* role = find_value(turn, key);
    const std::string name = fmt::format("{}.{}", field, key);
    if (role == nullptr) throw field_error(where_, field, "an object with role (or from)", turn);
    const auto known = role->is_string() ? kRoles.find(role->get<std::string>()) : kRoles.end();
    if (known == kRoles.end())
      throw field_error(where_, name, "system, user (human), assistant (gpt, bot) or tool", *role);
    return known->second;
  }

  void read_turn(const Json& turn, const std::string& field) {
    const std::string role = role_of(turn, field);
    const char* key = turn.contains("content") ? "content" : "value";
    const Json* content = find_value(turn, key);
    if (content == nullptr) throw field_error(where_, field, "an object with content (or value)", turn);
    add(role, media_.content_text(*content, fmt::format("{}.{}", field, key)));
    if (role == "assistant") sample_.messages.back().trained = is_trained(turn, field);
  }

  /// ms-swift's "loss": bool and "loss_scale": 0 or 1, OpenAI's "weight": 0 or 1.
  bool is_trained(const Json& turn, const std::string& field) const {
    for (const char* key : {"loss", "loss_scale", "weight"}) {
      const Json* value = find_value(turn, key);
      if (value == nullptr) continue;
      if (value->is_boolean()) return value->get<bool>();
      if (*value == 0 || *value == 1) return *value == 1;
      throw field_error(where_, fmt::format("{}.{}", field, key), "true, false, 0 or 1 (no weights between)", *value);
    }
    return true;
  }

  /// {"human": question, "assistant": answer}.
  void read_pair(const Json& turn, const std::string& field) {
    constexpr std::array kQuestions = {"human", "user"};
    constexpr std::array kAnswers = {"assistant", "gpt", "bot"};
    const char* question = first_name(turn, kQuestions);
    const char* answer = first_name(turn, kAnswers);
    if (question == nullptr || answer == nullptr) {
      throw field_error(where_, field, "role and content, from and value, or human and assistant", turn);
    }
    add("user", media_.content_text(turn.at(question), fmt::format("{}.{}", field, question)));
    add("assistant", media_.content_text(turn.at(answer), fmt::format("{}.{}", field, answer)));
  }

  void read_query_response() {
    const char* query = first_name(row_, kQueryNames);
    const char* response = first_name(row_, kResponseNames);
    if (query == nullptr) throw unknown_form();
    add_system(false);
    read_history();
    std::string question = media_.content_text(row_.at(query), query);
    const Json* input = find_value(row_, "input");
    if (std::string_view(query) == "instruction" && input != nullptr && *input != "") {
      question += "\n" + media_.content_text(*input, "input");
    }
    add("user", std::move(question));
    if (response != nullptr) add("assistant", media_.content_text(first_answer(row_.at(response)), response));
  }

  /// Keeps a list of texts as accepted answers and gives the first.
  const Json& first_answer(const Json& response) {
    const bool several =
        response.is_array() && !response.empty() &&
        std::all_of(response.begin(), response.end(), [](const Json& item) { return item.is_string(); });
    if (!several) return response;
    for (const auto& item : response) sample_.references.push_back(item.get<std::string>());
    return response.front();
  }

  void read_history() {
    const Json* history = find_value(row_, "history");
    if (history == nullptr) return;
    if (!history->is_array()) throw field_error(where_, "history", "a list of [question, answer] pairs", *history);
    for (size_t i = 0; i < history->size(); ++i) {
      const Json& pair = (*history)[i];
      const std::string field = fmt::format("history[{}]", i);
      if (!pair.is_array() || pair.size() != 2) throw field_error(where_, field, "a pair [question, answer]", pair);
      add("user", media_.content_text(pair[0], field + "[0]"));
      add("assistant", media_.content_text(pair[1], field + "[1]"));
    }
  }

  UserError unknown_form() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : row_.items()) names.push_back(name);
    std::string hint = "see docs/errors.md for the row forms";
    for (const auto& name : names) {
      const std::string meant = nearest_name(name, {"messages", "conversations", "query", "instruction"});
      if (!meant.empty()) hint = fmt::format("did you mean \"{}\" where the row has \"{}\"?", meant, name);
    }
    return data_error(
        fmt::format("{}: expected a field \"messages\", \"conversations\" or \"query\" (prompt, question, "
                    "instruction, ...), found {}",
                    where_, names.empty() ? "an empty object" : join(names, ", ")),
        hint);
  }

  const Json& row_;
  const std::string& where_;
  RowMedia media_;
  Sample sample_;
};

}  // namespace

std::string_view media_mark(Modality kind) {
  switch (kind) {
    case Modality::kImage:
      return "<image>";
    case Modality::kVideo:
      return "<video>";
    case Modality::kAudio:
      return "<audio>";
    default:
      break;
  }
  check(false, "a kind of media that texts mark");
  return {};
}

size_t media_count(const Sample& sample, Modality kind) {
  switch (kind) {
    case Modality::kImage:
      return sample.images.size();
    case Modality::kVideo:
      return sample.videos.size();
    case Modality::kAudio:
      return sample.audios.size();
    default:
      return 0;
  }
}

std::string describe_media(const Sample& sample, Modalities of) {
  std::vector<std::string> kinds;
  for (const Modality kind : kMediaKinds) {
    if (!of.has(kind)) continue;
    const size_t count = media_count(sample, kind);
    if (count > 0) kinds.push_back(fmt::format("{} {}{}", count, modality_name(kind), count == 1 ? "" : "s"));
  }
  if (of.has(Modality::kSpeech) && sample.speech) kinds.emplace_back("speech");
  return join(kinds, " and ");
}

Json video_json(const Video& video) {
  const bool is_file = !video.file.empty();
  Json object = {{is_file ? "video" : "frames", is_file ? Json(video.file) : Json(video.frames)}};
  const auto add = [&](const char* key, auto value) {
    if (value != 0) object[key] = value;
  };
  add("fps", video.fps);
  add("nframes", video.num_frames);
  add("min_frames", video.min_frames);
  add("max_frames", video.max_frames);
  add("min_pixels", video.min_pixels);
  add("max_pixels", video.max_pixels);
  add("total_pixels", video.total_pixels);
  return object.size() == 1 ? object.front() : object;
}

std::vector<std::string> media_references(const Sample& sample) {
  std::vector<std::string> all = sample.images;
  for (const auto& video : sample.videos) {
    all.insert(all.end(), video.frames.begin(), video.frames.end());
    if (!video.file.empty()) all.push_back(video.file);
  }
  all.insert(all.end(), sample.audios.begin(), sample.audios.end());
  return all;
}

Sample sample_from_row(const Json& row, const std::string& where, const std::filesystem::path& base_dir) {
  if (!row.is_object()) throw field_error(where, "(row)", "a JSON object", row);
  return RowReader(row, where, base_dir).read();
}

}  // namespace lockstep
