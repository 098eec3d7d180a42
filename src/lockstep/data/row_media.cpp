#include "lockstep/data/row_media.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace lockstep {

namespace {

constexpr std::string_view kMark = "<image>";

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

/// Some data sets store the picture itself without saying so; no path is that long and that plain.
bool looks_like_base64(std::string_view text) {
  constexpr size_t kLongestPath = 512;
  return text.size() > kLongestPath && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/' ||
                  c == '=' || c == '\n' || c == '\r';
         });
}

size_t count_marks(std::string_view text) {
  size_t count = 0;
  for (size_t at = text.find(kMark); at != std::string_view::npos; at = text.find(kMark, at + kMark.size())) ++count;
  return count;
}

}  // namespace

UserError field_error(const std::string& where, const std::string& field, const std::string& expected,
                      const Json& found) {
  constexpr size_t kLongest = 80;
  std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII, so that cutting is safe
  if (text.size() > kLongest) text = fmt::format("{}... ({} characters)", text.substr(0, kLongest), text.size());
  return data_error(fmt::format("{}: field \"{}\": expected {}, found {}", where, field, expected, text));
}

RowMedia::RowMedia(const Json& row, const std::string& where, const std::filesystem::path& base_dir)
    : where_(where), base_dir_(base_dir) {
  for (const char* field : {"videos", "video", "audios", "audio"}) {
    const auto it = row.find(field);
    if (it == row.end() || is_empty(*it)) continue;
    UserError error = field_error(where_, field, "no video or audio", *it);
    throw data_error(error.message(), "this build trains on text and images; leave such rows out");
  }
  const auto images = row.find("images"), image = row.find("image");
  const bool has_images = images != row.end() && !is_empty(*images),
             has_image = image != row.end() && !is_empty(*image);
  if (has_images && has_image) throw field_error(where_, "image", "either \"images\" or \"image\", not both", *image);
  if (has_images) read_images(*images, "images");
  if (has_image) read_images(*image, "image");
}

void RowMedia::read_images(const Json& value, const std::string& field) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i)
      row_images_.push_back(reference(value[i], fmt::format("{}[{}]", field, i)));
    return;
  }
  if (!value.is_object() || !value.begin().key().starts_with('<')) {
    row_images_.push_back(reference(value, field));
    return;
  }
  for (const auto& [name, path] : value.items()) {
    const std::string item = fmt::format("{}.{}", field, name);
    if (name == kMark) {
      row_images_.push_back(reference(path, item));
    } else {
      named_images_[name] = reference(path, item);
      named_used_[name] = false;
    }
  }
}

std::string RowMedia::reference(const Json& value, const std::string& field) const {
  if (value.is_string()) return path_reference(value.get<std::string>(), field);
  if (value.is_object()) {
    for (const char* key : {"path", "url", "image", "bytes", "data"}) {
      const auto it = value.find(key);
      if (it == value.end() || is_empty(*it)) continue;
      if (!it->is_string()) throw field_error(where_, fmt::format("{}.{}", field, key), "text", *it);
      const auto text = it->get<std::string>();
      const bool is_content = *key == 'b' || *key == 'd';
      return is_content && !text.starts_with("data:") ? "data:;base64," + text : path_reference(text, field);
    }
  }
  throw field_error(where_, field, "a path, a data: URI or {\"path\": ...}", value);
}

std::string RowMedia::path_reference(const std::string& text, const std::string& field) const {
  if (text.empty()) throw field_error(where_, field, "a path or a data: URI", text);
  if (text.starts_with("data:")) return text;
  if (text.starts_with("http://") || text.starts_with("https://")) {
    UserError error = field_error(where_, field, "a file or a data: URI", text);
    throw data_error(error.message(), "training reads no network: fetch the images first and write their paths");
  }
  if (looks_like_base64(text)) return "data:;base64," + text;
  constexpr std::string_view kFile = "file://";
  const std::filesystem::path path = text.starts_with(kFile) ? text.substr(kFile.size()) : text;
  return std::filesystem::absolute(base_dir_ / path).lexically_normal().string();
}

std::string RowMedia::content_text(const Json& content, const std::string& field) {
  if (content.is_string()) return marked_text(content.get<std::string>());
  if (!content.is_array()) throw field_error(where_, field, "text or a list of parts", content);
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) text += part_text(content[i], fmt::format("{}[{}]", field, i));
  return text;
}

std::string RowMedia::part_text(const Json& part, const std::string& field) {
  if (part.is_string()) return marked_text(part.get<std::string>());
  if (!part.is_object()) throw field_error(where_, field, "a part such as {\"type\": \"text\", \"text\": ...}", part);
  std::string type = part.contains("text") ? "text" : "image";
  if (const auto it = part.find("type"); it != part.end()) {
    if (!it->is_string()) throw field_error(where_, field + ".type", "text", *it);
    type = it->get<std::string>();
  }
  if (type == "text") {
    const auto it = part.find("text");
    if (it == part.end() || !it->is_string())
      throw field_error(where_, field, "{\"type\": \"text\", \"text\": \"...\"}", part);
    return marked_text(it->get<std::string>());
  }
  if (type != "image" && type != "image_url") {
    UserError error = field_error(where_, field + ".type", "text, image or image_url", type);
    throw data_error(error.message(), "this build trains on text and images");
  }
  marks_.emplace_back();  // without a source of its own it takes the row's next image
  for (const char* key : {"image", "image_url", "url", "path", "source"}) {
    const auto it = part.find(key);
    if (it == part.end() || is_empty(*it)) continue;
    marks_.back() = reference(*it, fmt::format("{}.{}", field, key));
    break;
  }
  return std::string(kMark);
}

std::string RowMedia::marked_text(std::string text) {
  for (size_t at = text.find("<image"); at != std::string::npos; at = text.find("<image", at + 1)) {
    const std::string_view rest = std::string_view(text).substr(at);
    if (rest.starts_with(kMark)) {
      marks_.emplace_back();
      continue;
    }
    const std::string name(rest.substr(0, rest.find('>') == std::string_view::npos ? 0 : rest.find('>') + 1));
    const auto named = named_images_.find(name);
    if (named == named_images_.end()) continue;
    marks_.emplace_back(named->second);
    named_used_[name] = true;
    text.replace(at, name.size(), kMark);
  }
  return text;
}

void RowMedia::resolve(Sample& sample) const {
  std::vector<std::string> loose = row_images_;
  for (const auto& [name, path] : named_images_) {
    if (!named_used_.at(name)) loose.push_back(path);
  }
  const auto open = static_cast<size_t>(std::count(marks_.begin(), marks_.end(), std::nullopt));
  if (open > loose.size()) {
    throw data_error(fmt::format("{}: expected an image for each <image> mark, found {} marks and {} images", where_,
                                 marks_.size(), marks_.size() - open + loose.size()),
                     "write \"images\": [...] with one path a mark");
  }
  // What is left over stands before the first question, hence after the marks of a system message before it.
  const size_t extra = loose.size() - open;
  const auto user =
      std::find_if(sample.messages.begin(), sample.messages.end(), [](const Message& m) { return m.role == "user"; });
  if (extra > 0 && user == sample.messages.end()) {
    throw data_error(fmt::format("{}: expected a user message to hold {} images, found none", where_, extra));
  }
  size_t marks_before = 0;
  for (auto it = sample.messages.begin(); extra > 0 && it != user; ++it) marks_before += count_marks(it->content);
  size_t next = 0;
  for (size_t i = 0; i <= marks_.size(); ++i) {
    if (extra > 0 && i == marks_before) {
      // The row's images keep their order: those without a mark come first.
      for (size_t k = 0; k < extra; ++k) sample.images.push_back(loose[next++]);
    }
    if (i < marks_.size()) sample.images.push_back(marks_[i] ? *marks_[i] : loose[next++]);
  }
  if (extra == 0) return;
  std::string marks;
  for (size_t i = 0; i < extra; ++i) marks += kMark;
  user->content = marks + user->content;
}

}  // namespace lockstep
