#include "lockstep/data/sample.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/row_fields.h"
#include "lockstep/data/row_media.h"
#include "lockstep/data/row_tokens.h"
#include "lockstep/data/row_tools.h"
#include "lockstep/data/row_turns.h"

namespace lockstep {

namespace {

// What every form reads beside its turns.
constexpr std::array kCommonNames = {"images", "image",         "videos", "video",   "audios", "audio",
                                     "system", "system_prompt", "tools",  "objects", "speech", "chat_template_kwargs",
                                     "id",     "metadata",      "group",  "channel", "adapter"};

/// A "prompt" of turns, in place of a text or the parts of one.
bool asks_in_turns(const Json& row) {
  const Json* prompt = find_value(row, "prompt");
  return prompt != nullptr && prompt->is_array() && !prompt->empty() && prompt->front().is_object() &&
         (prompt->front().contains("role") || prompt->front().contains("from"));
}

/// One row on its way to a Sample: all forms end in the same messages.
class RowReader {
 public:
  RowReader(const Json& row, const std::string& where, const MediaFolders& folders)
      : row_(row), where_(where), media_(row, where, folders) {
    sample_.where = where;
  }

  Sample read() {
    if (is_token_row(row_)) {
      read_token_row(row_, where_, sample_);
    } else if (const char* turns = first_name(row_, kTurnNames)) {
      read_turns(turns);
    } else if (asks_in_turns(row_)) {
      read_prompt_completion();
    } else {
      read_query_response();
    }
    read_template_variables();
    if (const Json* tools = find_value(row_, "tools")) {
      const Json list = read_tools(*tools, where_);
      if (!list.empty()) sample_.tools = list.dump();
    }
    media_.resolve(sample_);
    limit_videos();
    read_boxes();
    if (const Json* speech = find_value(row_, "speech")) sample_.speech = speech_of_row(*speech, where_);
    read_names();
    return std::move(sample_);
  }

 private:
  /// What a person keeps of a row beside its conversation.
  void read_names() {
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
  }

  /// ms-swift's chat_template_kwargs: limits of pictures and films, and what the template reads.
  void read_template_variables() {
    const Json* given = find_value(row_, "chat_template_kwargs");
    if (given == nullptr) return;
    const Json kwargs = literal_value(*given, where_, "chat_template_kwargs", "an object");
    if (!kwargs.is_object()) throw field_error(where_, "chat_template_kwargs", "an object", kwargs);
    Json variables = Json::object();
    for (const auto& [key, value] : kwargs.items()) {
      static constexpr std::array kLimits = {"fps",        "nframes",    "min_frames",  "max_frames",
                                             "min_pixels", "max_pixels", "total_pixels"};
      if (value.is_null()) continue;
      if (std::ranges::find(kLimits, key) == kLimits.end()) {
        variables.get_ref<Json::object_t&>().emplace_back(key, value);  // no key stands there twice
        continue;
      }
      const std::string field = "chat_template_kwargs." + key;
      constexpr double kMost = 1e12;
      const bool fits = value.is_number() && value.get<double>() > 0 && value.get<double>() <= kMost;
      if (!fits) throw field_error(where_, field, "a number above 0", value);
      const auto whole = static_cast<int64_t>(value.get<double>());
      if (key == "fps") film_.fps = value.get<double>();
      if (key == "nframes") film_.num_frames = whole;
      if (key == "min_frames") film_.min_frames = whole;
      if (key == "max_frames") film_.max_frames = whole;
      if (key == "total_pixels") film_.total_pixels = whole;
      if (key == "min_pixels") sample_.min_pixels = film_.min_pixels = whole;
      if (key == "max_pixels") sample_.max_pixels = film_.max_pixels = whole;
    }
    if (!variables.empty()) sample_.variables = variables.dump();
  }

  /// What the row says of all its films holds where a film says nothing itself.
  void limit_videos() {
    for (Video& video : sample_.videos) {
      const auto fill = [&](auto Video::*limit) {
        if (video.*limit == 0) video.*limit = film_.*limit;
      };
      const bool counts = video.num_frames > 0 || video.fps > 0;  // how many frames are taken is said
      fill(&Video::min_pixels);
      fill(&Video::max_pixels);
      fill(&Video::total_pixels);
      if (!counts) fill(&Video::fps);
      if (video.file.empty()) continue;  // a list has all its frames taken
      if (!counts) fill(&Video::num_frames);
      if (video.num_frames == 0) fill(&Video::min_frames);
      if (video.num_frames == 0) fill(&Video::max_frames);
    }
  }

  /// As many boxes and names as marks in the texts.
  void read_boxes() {
    const Json* given = find_value(row_, "objects");
    if (given == nullptr || given->empty() || *given == "") return;
    const Json value = literal_value(*given, where_, "objects", "an object");
    sample_.objects = read_objects(value, where_);
    const auto expect = [&](const char* mark, const char* field, size_t found) {
      size_t marks = 0;
      for (const auto& message : sample_.messages) {
        for (size_t at = message.content.find(mark); at != std::string::npos; at = message.content.find(mark, at + 1))
          ++marks;
      }
      if (marks == found) return;
      throw data_error(
          fmt::format("{}: field \"objects.{}\": expected one for each {} in the texts, found {} and {} mark(s)",
                      where_, field, mark, found, marks));
    };
    // A row whose texts have no mark of either kind carries its boxes for other programs (leaves_out_objects).
    const bool any = std::ranges::any_of(sample_.messages, [](const Message& message) {
      return message.content.find(kBoxMark) != std::string::npos || message.content.find(kRefMark) != std::string::npos;
    });
    if (!any) {
      sample_.objects = {};
      return;
    }
    expect(kBoxMark, "bbox", sample_.objects.boxes.size());
    expect(kRefMark, "ref", sample_.objects.refs.size());
    if (sample_.objects.of_one) return;
    for (const size_t image : sample_.objects.images) {
      if (image < sample_.images.size()) continue;
      throw data_error(
          fmt::format("{}: field \"objects.image_id\": expected a picture of the row, {} of them, found number {}",
                      where_, sample_.images.size(), image),
          "pictures are counted from 0; boxes of parts of 1 are \"bbox_type\": \"norm1\"");
    }
  }

  /// The row's own system prompt, unless the turns begin with one.
  void add_system(bool turns_have_one) {
    const Json *system = find_value(row_, "system"), *prompt = find_value(row_, "system_prompt");
    if (system != nullptr && prompt != nullptr && *system != *prompt)
      throw field_error(where_, "system_prompt", "\"system\" or \"system_prompt\", not two that differ", *prompt);
    if (system == nullptr) std::swap(system, prompt);
    if (system == nullptr || *system == "" || turns_have_one) return;
    add("system", *system, "system");
  }

  void add(std::string role, const Json& content, const std::string& field) {
    sample_.messages.push_back(media_.message(std::move(role), content, field));
  }

  void read_turns(const char* name) {
    const Json turns = literal_value(row_.at(name), where_, name, "a list of turns, at least one");
    TurnReader reader(where_, media_, sample_.messages);
    add_system(reader.begins_with_system(turns, name));
    reader.read(turns, name);
  }

  /// TRL's: of the turns that are asked none is learnt.
  void read_prompt_completion() {
    const Json& prompt = row_.at("prompt");
    TurnReader reader(where_, media_, sample_.messages);
    add_system(reader.begins_with_system(prompt, "prompt"));
    reader.read(prompt, "prompt");
    for (Message& asked : sample_.messages) asked.trained = asked.trained && asked.role != "assistant";
    const Json* completion = find_value(row_, "completion");
    const char* response = first_name(row_, kResponseNames);
    if (completion != nullptr && completion->is_array()) {
      (void)reader.begins_with_system(*completion, "completion");
      reader.read(*completion, "completion");
    } else if (response != nullptr) {
      add("assistant", first_answer(row_.at(response)), response);
    }
  }

  void read_query_response() {
    const char* query = first_name(row_, kQueryNames);
    const char* response = first_name(row_, kResponseNames);
    if (query == nullptr && !is_text_row()) throw unknown_form();
    add_system(false);
    read_history();
    if (query != nullptr) {
      add("user", row_.at(query), query);
      const Json* input = find_value(row_, "input");
      if (std::string_view(query) == "instruction" && input != nullptr && *input != "") {
        std::string& question = sample_.messages.back().content;
        question += (question.empty() ? "" : "\n") + media_.message("user", *input, "input").content;
      }
    }
    if (response != nullptr) add("assistant", first_answer(row_.at(response)), response);
  }

  /// A text without a question, which pre-training takes.
  bool is_text_row() const { return find_value(row_, "text") != nullptr || find_value(row_, "response") != nullptr; }

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
    const Json* given = find_value(row_, "history");
    if (given == nullptr || *given == "") return;
    const Json history = literal_value(*given, where_, "history", "a list of [question, answer] pairs");
    if (!history.is_array()) throw field_error(where_, "history", "a list of [question, answer] pairs", history);
    for (size_t i = 0; i < history.size(); ++i) {
      const Json& pair = history[i];
      const std::string field = fmt::format("history[{}]", i);
      if (!pair.is_array() || pair.size() != 2) throw field_error(where_, field, "a pair [question, answer]", pair);
      add("user", pair[0], field + "[0]");
      add("assistant", pair[1], field + "[1]");
    }
  }

  UserError unknown_form() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : row_.items()) names.push_back(name);
    std::string hint = "see docs/rows.md for the row forms";
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
  Video film_;  // limits of all films
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

Sample sample_from_row(const Json& row, const std::string& where, const MediaFolders& folders) {
  if (!row.is_object()) throw field_error(where, "(row)", "a JSON object", row);
  return RowReader(row, where, folders).read();
}

bool leaves_out_objects(const Json& row, const Sample& sample) {
  const Json* given = find_value(row, "objects");
  if (given == nullptr || given->empty() || *given == "" || !sample.objects.empty()) return false;
  return !read_objects(literal_value(*given, sample.where, "objects", "an object"), sample.where).empty();
}

std::vector<std::string> unread_columns(const Json& row) {
  std::vector<std::string> read(kCommonNames.begin(), kCommonNames.end()), unread;
  const auto also = [&](const char* name) {
    if (name != nullptr) read.emplace_back(name);
  };
  const char* turns = first_name(row, kTurnNames);
  if (is_token_row(row)) {
    read.insert(read.end(), {"input_ids", "labels"});
  } else if (turns != nullptr) {
    also(turns);
  } else if (asks_in_turns(row)) {
    also("prompt");
    also("completion");
    also(first_name(row, kResponseNames));
  } else {
    const char* query = first_name(row, kQueryNames);
    also(query);
    also(first_name(row, kResponseNames));
    also("history");
    if (query != nullptr && std::string_view(query) == "instruction") also("input");
  }
  for (const auto& [name, value] : row.items()) {
    if (!value.is_null() && std::ranges::find(read, name) == read.end()) unread.push_back(name);
  }
  if (turns == nullptr || !row.at(turns).is_array()) return unread;
  std::set<std::string> seen;
  for (const auto& turn : row.at(turns)) {
    if (!turn.is_object()) continue;
    for (const auto& [name, value] : turn.items()) {
      const bool learns = asks_to_learn_a_question(turn, name, value);
      const std::string told = fmt::format("{}[].{}{}", turns, name, learns ? " of a question" : "");
      if (!value.is_null() && (learns || !is_turn_key(name)) && seen.insert(told).second) unread.push_back(told);
    }
  }
  return unread;
}

}  // namespace lockstep
