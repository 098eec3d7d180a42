#include "lockstep/data/dataset_info.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/data/row_fields.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// One entry with its place, for typed reads.
class Entry {
 public:
  Entry(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json.is_object()) throw data_error(fmt::format("{}: expected an object, found {}", where_, shown(json)));
  }
  const Json* find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  std::string text(const char* key, const std::string& usual = "") const {
    const Json* found = find(key);
    if (found == nullptr) return usual;
    if (!found->is_string())
      throw data_error(fmt::format("{}: {}: expected text, found {}", where_, key, shown(*found)));
    return found->get<std::string>();
  }
  bool flag(const char* key) const {
    const Json* found = find(key);
    if (found == nullptr) return false;
    if (!found->is_boolean())
      throw data_error(fmt::format("{}: {}: expected true or false, found {}", where_, key, shown(*found)));
    return found->get<bool>();
  }
  Entry part(const char* key) const {
    static const Json kNone = Json::object();
    const Json* found = find(key);
    return {found == nullptr ? kNone : *found, fmt::format("{}: {}", where_, key)};
  }
  /// Keys that nothing reads would change what is meant.
  void expect_only(const std::vector<std::string>& keys) const {
    for (const auto& [key, value] : json_.items()) {
      if (value.is_null() || std::ranges::find(keys, key) != keys.end()) continue;
      const std::string meant = nearest_name(key, keys);
      throw data_error(fmt::format("{}: expected one of {}, found \"{}\"", where_, join(keys, ", "), cut_text(key)),
                       meant.empty() ? "" : fmt::format("did you mean \"{}\"?", meant));
    }
  }
  const std::string& where() const { return where_; }
  const Json& json() const { return json_; }

  static std::string shown(const Json& value) {
    return cut_text(value.dump(-1, ' ', true, Json::error_handler_t::replace));
  }

 private:
  const Json& json_;
  std::string where_;
};

void refuse_ranking(const Entry& entry, const Entry& columns) {
  bool ranks = entry.flag("ranking");
  for (const char* key : {"chosen", "rejected", "kto_tag"}) ranks = ranks || !columns.text(key).empty();
  if (!ranks) return;
  throw data_error(
      fmt::format("{}: expected rows to learn from as they are, found rows of preferences (ranking)", entry.where()),
      "training by preferences is not built: name a data set of answers");
}

/// All that a conversation and its media may be read from.
std::set<std::string> conversation_columns() {
  std::set<std::string> all = {"history", "system", "system_prompt", "tools",  "images",
                               "image",   "videos", "video",         "audios", "audio"};
  all.insert(kQueryNames.begin(), kQueryNames.end());
  all.insert(kResponseNames.begin(), kResponseNames.end());
  all.insert(kTurnNames.begin(), kTurnNames.end());
  return all;
}

/// Columns of both formats, by the usual names. Those that an entry does not name are not read, whatever stands in them.
void map_columns(RowMapping& mapping, const Entry& columns, bool sharegpt) {
  columns.expect_only({"prompt", "query", "response", "history", "messages", "system", "tools", "images", "videos",
                       "audios", "chosen", "rejected", "kto_tag"});
  mapping.unread = conversation_columns();
  const auto map = [&](const char* key, const std::string& usual, const char* name) {
    // Without "columns" these are the usual ones; beside others what is not said is none.
    const std::string own = columns.text(key, columns.json().empty() ? usual : "");
    if (!own.empty() && own != name) mapping.columns.emplace_back(own, name);
    mapping.unread.erase(own);
  };
  if (sharegpt) {
    map("messages", "conversations", "messages");
  } else {
    map("prompt", "instruction", "instruction");
    map("query", "input", "input");
    map("response", "output", "output");
    map("history", "", "history");
  }
  for (const char* key : {"system", "tools", "images", "videos", "audios"}) map(key, "", key);
}

/// Source: LLaMA-Factory 0.9.6 data/parser.py.
InfoEntry factory_entry(const Entry& entry, const fs::path& folder) {
  entry.expect_only({"file_name", "formatting", "ranking", "subset", "split", "folder", "num_samples", "columns",
                     "tags", "script_url", "hf_hub_url", "ms_hub_url", "om_hub_url", "cloud_file_name", "file_sha1"});
  InfoEntry made;
  const std::string file = entry.text("file_name");
  if (file.empty()) {
    throw data_error(fmt::format("{}: expected \"file_name\" with a file or folder, found {}", entry.where(),
                                 Entry::shown(entry.json())),
                     "nothing is fetched from a hub or a cloud: fetch the data set, and name its files");
  }
  made.path = (folder / file).lexically_normal().string();
  const std::string formatting = entry.text("formatting", "alpaca");
  const bool sharegpt = formatting == "sharegpt" || formatting == "openai";
  if (!sharegpt && formatting != "alpaca")
    throw data_error(fmt::format("{}: formatting: expected alpaca, sharegpt or openai, found \"{}\"", entry.where(),
                                 cut_text(formatting)));
  const Entry columns = entry.part("columns"), tags = entry.part("tags");
  refuse_ranking(entry, columns);
  map_columns(made.mapping, columns, sharegpt);
  tags.expect_only(
      {"role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag", "function_tag", "system_tag"});
  if (sharegpt) {
    made.mapping.role_key = tags.text("role_tag", "from");
    made.mapping.content_key = tags.text("content_tag", "value");
    const auto role = [&](const char* key, const char* usual, const char* name) {
      made.mapping.roles[tags.text(key, usual)] = name;
    };
    role("user_tag", "human", "user");
    role("assistant_tag", "gpt", "assistant");
    role("observation_tag", "observation", "tool");
    role("function_tag", "function_call", "tool_call");
    role("system_tag", "system", "system");
  }
  made.subset = entry.text("subset");
  made.split = entry.text("split");
  if (!made.split.empty() && made.split != "train" && !fs::is_directory(made.path)) {
    throw data_error(fmt::format("{}: split: expected \"train\", all that a file has, found \"{}\"", entry.where(),
                                 cut_text(made.split)),
                     "\"num_samples\": N takes the first rows; or name a folder with files of its splits");
  }
  if (const Json* samples = entry.find("num_samples")) {
    if (!samples->is_number_integer() || samples->get<int64_t>() < 1)
      throw data_error(
          fmt::format("{}: num_samples: expected a number from 1, found {}", entry.where(), Entry::shown(*samples)));
    made.count = samples->get<int64_t>();
  }
  return made;
}

/// Source: ms-swift 4.6 dataset/register.py.
InfoEntry swift_entry(const Entry& entry, const fs::path& folder) {
  InfoEntry made;
  const std::string path = entry.text("dataset_path");
  if (path.empty()) {
    throw data_error(fmt::format("{}: expected \"dataset_path\" with a file or folder, found {}", entry.where(),
                                 Entry::shown(entry.json())),
                     "nothing is fetched from a hub: fetch the data set, and name its files");
  }
  made.path = (folder / path).lexically_normal().string();
  const Entry columns = entry.part("columns");
  for (const auto& [from, to] : columns.json().items()) {
    made.mapping.columns.emplace_back(from, columns.text(from.c_str()));
  }
  const Entry messages = entry.part("messages");
  messages.expect_only({"role_key", "content_key", "user_role", "assistant_role", "system_role"});
  made.mapping.role_key = messages.text("role_key");
  made.mapping.content_key = messages.text("content_key");
  for (const auto& [key, role] :
       {std::pair("user_role", "user"), {"assistant_role", "assistant"}, {"system_role", "system"}}) {
    if (const std::string own = messages.text(key); !own.empty()) made.mapping.roles[own] = role;
  }
  if (const Json* subsets = entry.find("subsets")) {
    for (const auto& one : *subsets) {
      if (!one.is_string())
        throw data_error(fmt::format("{}: subsets: expected names, found {}", entry.where(), Entry::shown(one)),
                         "give a subset with columns of its own an entry of its own");
      made.subsets.push_back(one.get<std::string>());
    }
  }
  if (const Json* split = entry.find("split")) {
    const bool one = split->is_array() && split->size() == 1 && split->front().is_string();
    if (!one && !split->is_string())
      throw data_error(fmt::format("{}: split: expected one name, found {}", entry.where(), Entry::shown(*split)));
    made.split = one ? split->front().get<std::string>() : split->get<std::string>();
  }
  return made;
}

/// As the script finds it from where it is started, or else beside the file.
std::string found_from(const fs::path& folder, const std::string& path) {
  return (fs::exists(path) ? fs::path(path) : folder / path).lexically_normal().string();
}

/// Source: OpenGVLab/InternVL, internvl_chat/internvl/train/internvl_chat_finetune.py build_datasets.
InfoEntry internvl_entry(const Entry& entry, const fs::path& folder) {
  entry.expect_only({"root", "annotation", "data_augment", "max_dynamic_patch", "repeat_time", "length"});
  InfoEntry made;
  made.path = found_from(folder, entry.text("annotation"));
  if (const std::string root = entry.text("root"); !root.empty()) made.media_dir = found_from(folder, root);
  if (entry.flag("data_augment")) {
    throw data_error(fmt::format("{}: data_augment: expected false, found true", entry.where()),
                     "pictures are learnt as they are: none is compressed anew at random");
  }
  const Json* times = entry.find("repeat_time");
  if (times == nullptr || (times->is_number() && times->get<double>() == 1)) return made;
  const Json* length = entry.find("length");
  const bool counted = length != nullptr && length->is_number_integer() && length->get<int64_t>() > 0;
  if (!times->is_number() || !(times->get<double>() > 0) || !counted) {
    throw data_error(fmt::format("{}: expected a repeat_time above 0 beside the length in rows, found {} and {}",
                                 entry.where(), Entry::shown(*times),
                                 length == nullptr ? "none" : Entry::shown(*length)));
  }
  made.count = static_cast<int64_t>(times->get<double>() * static_cast<double>(length->get<int64_t>()));
  return made;
}

}  // namespace

std::optional<InfoEntry> find_entry(const fs::path& file, const std::string& name, std::vector<std::string>& known) {
  if (!fs::is_regular_file(file))
    throw data_error(fmt::format("{}: expected a file of data sets' names, found none", file.string()));
  Json json;
  JsonFault fault;
  const std::string text = read_text(file);
  if (!try_parse_json(text, json, fault) || !json.is_structured()) {
    throw data_error(fmt::format(
        "{}: expected JSON, an object or a list of data sets, found {}", file.string(),
        fault.why.empty() ? Entry::shown(json) : fmt::format("byte {}: {}", fault.byte, cut_text(fault.why))));
  }
  const fs::path folder = fs::absolute(file).parent_path();
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) known.push_back(key);
    const auto found = json.find(name);
    if (found == json.end()) return std::nullopt;
    const Entry entry(*found, fmt::format("{}: \"{}\"", file.string(), name));
    return entry.find("annotation") == nullptr ? factory_entry(entry, folder) : internvl_entry(entry, folder);
  }
  for (size_t i = 0; i < json.size(); ++i) {
    const Entry entry(json[i], fmt::format("{}[{}]", file.string(), i));
    for (const char* key : {"dataset_name", "ms_dataset_id", "hf_dataset_id", "dataset_path"}) {
      const std::string own = entry.text(key);
      if (own.empty()) continue;
      if (own == name) return swift_entry(entry, folder);
      known.push_back(own);
    }
  }
  return std::nullopt;
}

}  // namespace lockstep
