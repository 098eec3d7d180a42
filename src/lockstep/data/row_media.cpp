#include "lockstep/data/row_media.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/data/media_content.h"
#include "lockstep/data/row_marks.h"

namespace lockstep {

namespace {

// Content comes before a name: a hub's pictures carry the names that they had elsewhere.
constexpr std::array<const char*, 8> kVideoSources = {"frames", "bytes", "base64",    "data",
                                                      "video",  "path",  "video_url", "url"};
constexpr std::array<const char*, 8> kPictureSources = {"bytes",     "base64", "data", "image",
                                                        "image_url", "url",    "path", "source"};
constexpr std::array<const char*, 8> kSoundSources = {"bytes",     "base64",      "data", "audio",
                                                      "audio_url", "input_audio", "url",  "path"};
constexpr std::string_view kMark = "<image>", kVideoMark = "<video>", kAudioMark = "<audio>";

bool is_empty(const Json& value) {
  return value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}

bool says(const Json& object, const char* key) { return object.contains(key) && !is_empty(object.at(key)); }

}  // namespace

UserError field_error(const std::string& where, const std::string& field, const std::string& expected,
                      const Json& found) {
  constexpr size_t kLongest = 80;
  std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);  // ASCII, so that cutting is safe
  if (text.size() > kLongest) text = fmt::format("{}... ({} characters)", text.substr(0, kLongest), text.size());
  return data_error(fmt::format("{}: field \"{}\": expected {}, found {}", where, field, expected, text));
}

RowMedia::RowMedia(const Json& row, const std::string& where, const MediaFolders& folders)
    : where_(where), folders_(folders) {
  const auto given = [&](const char* field) {
    const auto it = row.find(field);
    return it == row.end() || is_empty(*it) ? nullptr : &*it;
  };
  const auto one_of = [&](const char* plural, const char* singular) {
    const Json *several = given(plural), *one = given(singular);
    if (several != nullptr && one != nullptr)
      throw field_error(where_, singular, fmt::format("either \"{}\" or \"{}\", not both", plural, singular), *one);
    return several != nullptr ? plural : one != nullptr ? singular : nullptr;
  };
  if (const char* field = one_of("images", "image")) {
    has_images_ = true;
    read_images(row.at(field), field);
  }
  if (const char* field = one_of("videos", "video")) read_videos(row.at(field), field);
  if (const char* field = one_of("audios", "audio")) read_audios(row.at(field), field);
}

void RowMedia::read_videos(const Json& value, const std::string& field) {
  const bool list = field == "videos" && value.is_array();
  for (size_t i = 0; i < (list ? value.size() : 1); ++i) {
    row_videos_.push_back(list ? video(value[i], fmt::format("{}[{}]", field, i)) : video(value, field));
  }
}

void RowMedia::read_audios(const Json& value, const std::string& field) {
  if (!value.is_array()) {
    row_audios_.push_back(sound(value, field));
    return;
  }
  for (size_t i = 0; i < value.size(); ++i) row_audios_.push_back(sound(value[i], fmt::format("{}[{}]", field, i)));
}

/// A file, a list of frames, or an object with either and what is asked for besides.
Video RowMedia::video(const Json& value, const std::string& field) const {
  const Json* source = &value;
  std::string at = field;
  for (const char* key : kVideoSources) {
    if (!value.is_object() || !says(value, key)) continue;
    source = &value.at(key);
    at = fmt::format("{}.{}", field, key);
    if (source->is_string() && is_content(key)) source = &value;  // reference() knows what they are
    break;
  }
  Video made;
  if (source->is_array() && !source->empty()) {
    for (size_t i = 0; i < source->size(); ++i)
      made.frames.push_back(reference((*source)[i], fmt::format("{}[{}]", at, i)));
  } else if (source->is_string() || (source->is_object() && (source != &value || at != field))) {
    made.file = reference(*source, at);
  } else {
    throw field_error(where_, field, "a file, or a list of frames, at least one", *source);
  }
  if (value.is_object()) read_wishes(value, field, made);
  return made;
}

/// Under the names of qwen_vl_utils.
void RowMedia::read_wishes(const Json& value, const std::string& field, Video& into) const {
  const auto number = [&](const std::string& name, const Json& found, const char* expected) {
    if (!found.is_number() || !(found.get<double>() > 0)) throw field_error(where_, name, expected, found);
    return found.get<double>();
  };
  struct Count {
    const char* key;
    int64_t Video::*to;
    bool of_file;  // a list has all its frames taken
  };
  constexpr std::array<Count, 6> kCounts{{{"nframes", &Video::num_frames, true},
                                          {"min_frames", &Video::min_frames, true},
                                          {"max_frames", &Video::max_frames, true},
                                          {"min_pixels", &Video::min_pixels, false},
                                          {"max_pixels", &Video::max_pixels, false},
                                          {"total_pixels", &Video::total_pixels, false}}};
  constexpr double kMost = 1e12;
  const bool is_file = !into.file.empty();
  for (const auto& [key, found] : value.items()) {
    const std::string name = fmt::format("{}.{}", field, key);
    const auto* count = std::ranges::find_if(kCounts, [&key = key](const Count& one) { return key == one.key; });
    if (key == "type" || std::ranges::find(kVideoSources, key) != kVideoSources.end() || found.is_null() || found == "")
      continue;
    if (key == "fps" || (!is_file && key == "sample_fps")) {
      into.fps = number(name, found, "frames a second, above 0");
    } else if (!is_file && key == "raw_fps") {
      (void)number(name, found, "frames a second, above 0");  // of the film that the frames come from
    } else if (count != kCounts.end() && (is_file || !count->of_file)) {
      into.*count->to = static_cast<int64_t>(std::min(kMost, number(name, found, "a whole number above 0")));
    } else {
      const UserError error = field_error(where_, name, "no such key", found);
      throw data_error(error.message(),
                       is_file ? "a film takes fps, nframes, min_frames, max_frames, min_pixels, max_pixels, "
                                 "total_pixels; cut it with ffmpeg -ss START -to END -i IN OUT.mp4"
                               : "frames take fps (or sample_fps), min_pixels, max_pixels, total_pixels");
    }
  }
  if (into.num_frames > 0 && (into.fps > 0 || into.min_frames > 0 || into.max_frames > 0))
    throw field_error(where_, field, "either nframes or frames a second", value);
}

void RowMedia::read_images(const Json& value, const std::string& field) {
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) row_images_.push_back(picture(value[i], fmt::format("{}[{}]", field, i)));
    return;
  }
  if (!value.is_object() || !value.begin().key().starts_with('<')) {
    row_images_.push_back(picture(value, field));
    return;
  }
  for (const auto& [name, path] : value.items()) {
    const std::string item = fmt::format("{}.{}", field, name);
    if (name == kMark) {
      row_images_.push_back(picture(path, item));
    } else {
      named_images_[name] = picture(path, item);
      named_used_[name] = false;
    }
  }
}

std::string RowMedia::picture(const Json& value, const std::string& field) const {
  refuse_size(value, field);
  return reference(value, field);
}

std::string RowMedia::sound(const Json& value, const std::string& field) const {
  refuse_part(value, field);
  return reference(value, field);
}

/// The key under which a part has its medium. nullptr: it takes the row's next one, and may not say anything about it, as
/// {"type": "image", "file": "b.png"} would.
const char* RowMedia::source_of(const Json& part, const std::string& field, const char* kind,
                                std::span<const char* const> keys) const {
  constexpr std::array<std::string_view, 5> kHarmless = {"type", "index", "id", "detail", "cache_control"};
  const auto own = std::ranges::find_if(keys, [&](const char* key) { return says(part, key); });
  if (own != keys.end()) return *own;
  for (const auto& [key, value] : part.items()) {
    if (is_empty(value) || std::ranges::find(kHarmless, key) != kHarmless.end()) continue;
    throw field_error(where_, fmt::format("{}.{}", field, key),
                      fmt::format("\"{}\": the medium, or nothing where the row's \"{}s\" have it", kind, kind), value);
  }
  return nullptr;
}

/// qwen_omni_utils' words for a part of a clip.
void RowMedia::refuse_part(const Json& value, const std::string& field) const {
  for (const char* key : {"audio_start", "audio_end"}) {
    const auto found = value.is_object() ? value.find(key) : value.end();
    if (!value.is_object() || found == value.end() || found->is_null()) continue;
    const UserError error = field_error(where_, fmt::format("{}.{}", field, key), "a whole clip", *found);
    throw data_error(error.message(), "cut it with ffmpeg -ss START -to END -i IN OUT.wav");
  }
}

/// qwen_vl_utils' sizes of one picture, which would be other pixels.
void RowMedia::refuse_size(const Json& value, const std::string& field) const {
  for (const char* key : {"min_pixels", "max_pixels", "resized_height", "resized_width"}) {
    const auto found = value.is_object() ? value.find(key) : value.end();
    if (!value.is_object() || found == value.end() || found->is_null()) continue;
    const UserError error = field_error(where_, fmt::format("{}.{}", field, key), "no size of one picture", *found);
    throw data_error(error.message(),
                     "\"chat_template_kwargs\": {\"max_pixels\": N} of the row limits all its pictures, --max_pixels "
                     "those of all rows");
  }
}

std::string RowMedia::reference(const Json& value, const std::string& field) const {
  if (value.is_string()) return path_reference(value.get<std::string>(), field);
  if (value.is_object()) {
    for (const char* key : {"bytes", "base64", "data", "path", "url", "image", "audio"}) {
      const auto it = value.find(key);
      if (it == value.end() || is_empty(*it)) continue;
      if (it->is_object()) {  // {"data": {"path": …}}, whose own wishes are those of the whole
        refuse_size(*it, fmt::format("{}.{}", field, key));
        refuse_part(*it, fmt::format("{}.{}", field, key));
        return reference(*it, fmt::format("{}.{}", field, key));
      }
      if (!it->is_string()) throw field_error(where_, fmt::format("{}.{}", field, key), "text", *it);
      const auto text = it->get<std::string>();
      return is_content(key) && !is_data_uri(text) ? "data:;base64," + text : path_reference(text, field);
    }
  }
  throw field_error(where_, field, "a path, a data: URI or {\"path\": ...}", value);
}

std::string RowMedia::path_reference(const std::string& text, const std::string& field) const {
  if (text.empty()) throw field_error(where_, field, "a path or a data: URI", text);
  if (is_data_uri(text)) return "data:" + text.substr(5);
  if (text.find('\0') != std::string::npos) throw field_error(where_, field, "a path without a byte of zero", text);
  if (text.starts_with("http://") || text.starts_with("https://")) {
    UserError error = field_error(where_, field, "a file or a data: URI", text);
    throw data_error(error.message(), "training reads no network: fetch the files first and write their paths");
  }
  if (looks_like_base64(text)) return "data:;base64," + text;
  constexpr std::string_view kFile = "file://";
  const std::filesystem::path path = text.starts_with(kFile) ? text.substr(kFile.size()) : text;
  return find_medium(folders_, path, where_);
}

Message RowMedia::message(std::string role, const Json& content, const std::string& field) {
  Message out{.role = std::move(role), .content = ""};
  // As a table's column of bytes is read: old writers of Parquet keep texts so, without a word that they are.
  const bool bytes = content.is_string() && content.get_ref<const std::string&>().starts_with("data:;base64,");
  if (content.is_string() && !bytes) {
    out.content = marked_text(content.get<std::string>());
    return out;
  }
  if (!content.is_array())
    throw field_error(where_, field, bytes ? "text, not bytes" : "text or a list of parts", content);
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string text = part_text(content[i], fmt::format("{}[{}]", field, i));
    const bool medium = content[i].is_object() && !says(content[i], "text") && !text.empty();
    if (medium && out.media_in_front == i) ++out.media_in_front;
    out.content += text;
  }
  return out;
}

std::string RowMedia::part_text(const Json& part, const std::string& field) {
  if (part.is_string()) return marked_text(part.get<std::string>());
  if (!part.is_object()) throw field_error(where_, field, "a part such as {\"type\": \"text\", \"text\": ...}", part);
  const auto any = [&](const auto& keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return part.contains(key); });
  };
  std::string type = part.contains("text")                                  ? "text"
                     : part.contains("video") || part.contains("video_url") ? "video"
                     : part.contains("audio")                               ? "audio"
                     : any(kPictureSources)                                 ? "image"
                                                                            : "";
  if (const auto it = part.find("type"); it != part.end()) {
    if (!it->is_string()) throw field_error(where_, field + ".type", "text", *it);
    type = it->get<std::string>();
  }
  if (type.empty()) throw field_error(where_, field, "a part such as {\"type\": \"text\", \"text\": ...}", part);
  if (type == "text") {
    const auto it = part.find("text");
    if (it == part.end() || !it->is_string())
      throw field_error(where_, field, "{\"type\": \"text\", \"text\": \"...\"}", part);
    constexpr std::array kBeside = {"image", "image_url", "video", "video_url", "audio", "audio_url", "input_audio"};
    if (std::ranges::any_of(kBeside, [&](const char* key) { return says(part, key); }))
      throw field_error(where_, field, "a text or a medium: two parts", part);
    return marked_text(it->get<std::string>());
  }
  if (type == "image" || type == "image_url") return picture_part(part, field);
  if (type == "video" || type == "video_url") return video_part(part, field);
  if (type == "audio" || type == "audio_url" || type == "input_audio") return audio_part(part, field);
  throw field_error(where_, field + ".type",
                    "text, image, image_url, video, video_url, audio, audio_url or input_audio", type);
}

std::string RowMedia::picture_part(const Json& part, const std::string& field) {
  marks_.emplace_back();
  refuse_size(part, field);
  if (const char* key = source_of(part, field, "image", kPictureSources))  // reference() knows what contents are
    marks_.back() = picture(is_content(key) ? part : part.at(key), fmt::format("{}.{}", field, key));
  return std::string(kMark);
}

std::string RowMedia::video_part(const Json& part, const std::string& field) {
  const bool own = source_of(part, field, "video", kVideoSources) != nullptr;
  video_marks_.push_back(own ? std::optional<Video>(video(part, field)) : std::nullopt);
  return std::string(kVideoMark);
}

std::string RowMedia::audio_part(const Json& part, const std::string& field) {
  audio_marks_.emplace_back();
  refuse_part(part, field);
  if (const char* key = source_of(part, field, "audio", kSoundSources))
    audio_marks_.back() = sound(is_content(key) ? part : part.at(key), fmt::format("{}.{}", field, key));
  return std::string(kAudioMark);
}

std::string RowMedia::marked_text(const std::string& text) {
  video_marks_.resize(video_marks_.size() + count_marks(text, kVideoMark));
  audio_marks_.resize(audio_marks_.size() + count_marks(text, kAudioMark));
  std::string marked;
  size_t copied = 0;
  for (size_t at = text.find("<im"); at != std::string::npos;) {
    const size_t taken = take_mark(std::string_view(text).substr(at));
    if (taken > 0) {
      marked.append(text, copied, at - copied).append(kMark);
      copied = at + taken;
    }
    at = text.find("<im", at + std::max<size_t>(1, taken));
  }
  return marked.append(text, copied);
}

/// How many letters are <image>, a name of the row's, or <img>path</img>; 0: what is something else stays.
size_t RowMedia::take_mark(std::string_view rest) {
  constexpr std::string_view kBegin = "<img>", kEnd = "</img>";
  constexpr size_t kLongestName = 1024;
  if (rest.starts_with(kMark)) {
    marks_.emplace_back();
    return kMark.size();
  }
  if (rest.starts_with(kBegin) && !has_images_) {
    const size_t end = std::min(rest.find_first_of("<>\n", kBegin.size()), rest.size());
    if (end > kBegin.size() && rest.substr(end).starts_with(kEnd)) {
      marks_.emplace_back(path_reference(std::string(rest.substr(kBegin.size(), end - kBegin.size())), "<img>"));
      return end + kEnd.size();
    }
  }
  const std::string name(rest.substr(0, rest.substr(0, kLongestName).find('>') + 1));
  const auto named = named_images_.find(name);
  if (named == named_images_.end()) return 0;
  marks_.emplace_back(named->second);
  named_used_[name] = true;
  return name.size();
}

void RowMedia::resolve(Sample& sample) const {
  std::vector<std::string> loose = row_images_;
  for (const auto& [name, path] : named_images_) {
    if (!named_used_.at(name)) loose.push_back(path);
  }
  sample.images = resolved(Marked<std::string>{kMark, "image", marks_, std::move(loose)}, sample.messages, where_);
  // Without such a medium a mark is an HTML tag like any other; a model that takes some refuses it later.
  const auto any = [](const auto& row, const auto& marks) {
    return !row.empty() || std::ranges::any_of(marks, [](const auto& mark) { return mark.has_value(); });
  };
  if (any(row_audios_, audio_marks_)) {
    sample.audios =
        resolved(Marked<std::string>{kAudioMark, "audio", audio_marks_, row_audios_}, sample.messages, where_);
  }
  if (any(row_videos_, video_marks_)) {  // of what has no mark films stand first, as in ms-swift
    sample.videos = resolved(Marked<Video>{kVideoMark, "video", video_marks_, row_videos_}, sample.messages, where_);
  }
}

}  // namespace lockstep
