#include "lockstep/zoo/chat_processor.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/row_tokens.h"
#include "lockstep/zoo/fit_length.h"

namespace lockstep {
namespace {

constexpr int32_t kIgnored = -100;
constexpr std::string_view kImageMark = "<image>", kVideoMark = "<video>";
constexpr double kUsualFps = 2.0;

std::optional<int32_t> special_id(const Tokenizer& tokenizer, std::string_view role) {
  const auto token = tokenizer.special(role);
  return token ? tokenizer.id_of(*token) : std::nullopt;
}

/// How marks become parts.
struct MarkRules {
  bool images = true, videos = false;  // which marks there are
  bool take_break = true;              // one line break beside a mark is part of it
};

/// The next mark from `begin`, and which; npos when there is none.
std::pair<size_t, std::string_view> next_mark(std::string_view content, size_t begin, const MarkRules& rules) {
  const size_t image = rules.images ? content.find(kImageMark, begin) : std::string_view::npos;
  const size_t video = rules.videos ? content.find(kVideoMark, begin) : std::string_view::npos;
  return image <= video ? std::pair(image, kImageMark) : std::pair(video, kVideoMark);
}

/// A mark usually stands on its own line. Where the template writes a line break of its own beside media, that of the
/// text belongs to the mark.
std::string_view without_line_break(std::string_view text, bool after_mark, bool before_mark) {
  if (after_mark && text.starts_with('\n')) text.remove_prefix(1);
  if (before_mark && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

/// "a <image> b" -> [{text}, {image}, {text}].
Json typed_parts(std::string_view content, const MarkRules& rules) {
  Json parts = Json::array();
  for (size_t begin = 0;;) {
    const auto [at, mark] = next_mark(content, begin, rules);
    const bool found = at != std::string_view::npos;
    auto text = content.substr(begin, found ? at - begin : std::string_view::npos);
    if (rules.take_break) text = without_line_break(text, begin > 0, found);
    if (!text.empty() || (!found && parts.empty())) parts.push_back({{"type", "text"}, {"text", text}});
    if (!found) return parts;
    parts.push_back({{"type", mark == kImageMark ? "image" : "video"}});
    begin = at + mark.size();
  }
}

size_t marks_in(std::string_view content, std::string_view mark) {
  size_t count = 0;
  for (size_t at = content.find(mark); at != std::string_view::npos; at = content.find(mark, at + mark.size())) ++count;
  return count;
}

/// Source: ms-swift 4.6 rescale_image, which resizes by Pillow.
Image shrunk(Image image, int64_t max_pixels) {
  if (max_pixels <= 0 || image.width * image.height <= max_pixels) return image;
  const double ratio = static_cast<double>(image.width) / static_cast<double>(image.height);
  const double height = std::sqrt(static_cast<double>(max_pixels) / ratio);
  const auto edge = [](double length) { return std::max<int64_t>(1, static_cast<int64_t>(length)); };
  return resize(image, edge(height * ratio), edge(height), Resample::kBilinear, ImageBackend::kPillow);
}

/// One kind of medium of a row: as many marks as media, and only where the model has such media.
void check_kind(const Sample& sample, std::string_view mark, const char* name, int32_t token, size_t given) {
  if (token < 0) {
    if (given == 0) return;
    throw data_error(fmt::format("{}: expected no {}s (this model reads no {}s), found {} {}(s)", sample.where, name,
                                 name, given, name),
                     fmt::format("take a model with {}, or leave the {}s out of the row",
                                 mark == kImageMark ? "vision" : "video", name));
  }
  size_t marks = 0;
  for (const auto& message : sample.messages) marks += marks_in(message.content, mark);
  if (marks == given) return;
  throw data_error(fmt::format("{}: expected one {} mark for each {}, found {} mark(s) and {} {}(s)", sample.where,
                               mark, name, marks, given, name));
}

}  // namespace

/// Ids and labels in the making.
struct ChatProcessor::Row : TokenRow {
  std::vector<PixelBlock> media;
};

ChatProcessor::ChatProcessor(ChatParts parts) : parts_(std::move(parts)) {
  const std::string& source = parts_.chat.source();
  parts_as_lists_ = (parts_.media.image_token >= 0 || parts_.media.video_token >= 0) &&
                    (source.find("'type'") != std::string::npos || source.find("\"type\"") != std::string::npos ||
                     source.find(".type") != std::string::npos);
  mark_takes_break_ = !parts_as_lists_ || breaks_line_after_image();
  stops_.insert(parts_.stop_tokens.begin(), parts_.stop_tokens.end());
  const auto end = special_id(parts_.tokenizer, "eos_token");
  if (end) stops_.insert(*end);
  for (const int32_t id : turn_ends()) stops_.insert(id);
  end_ = end ? *end : stops_.empty() ? -1 : *stops_.begin();
  pad_ = special_id(parts_.tokenizer, "pad_token").value_or(std::max(0, end_));
}

/// What the template writes behind an assistant's words, as far as it is a special token.
std::vector<int32_t> ChatProcessor::turn_ends() const {
  const Json probe = {{{"role", "user"}, {"content", template_content("a")}},
                      {{"role", "assistant"}, {"content", template_content("b")}}};
  std::vector<TextSpan> spans;
  try {
    spans = parts_.chat.render_spans(probe, render_options(false));
  } catch (const UserError&) {
    return {};  // a template for other conversations only: its errors come with the rows
  }
  for (const auto& span : spans) {
    if (!span.trained) continue;
    for (const int32_t id : parts_.tokenizer.encode(span.text, {.continues = true})) {
      if (parts_.tokenizer.is_special(id)) return {id};
    }
  }
  return {};
}

bool ChatProcessor::breaks_line_after_image() const {
  const Json probe = {{{"role", "user"}, {"content", typed_parts("<image>What?", {.take_break = false})}}};
  try {
    const std::string text = parts_.chat.render(probe, render_options(true));
    const size_t at = text.find("What?");
    return at != std::string::npos && at > 0 && text[at - 1] == '\n';
  } catch (const UserError&) {
    return true;
  }
}

RenderOptions ChatProcessor::render_options(bool generation_prompt) const {
  return {.add_generation_prompt = generation_prompt,
          .bos_token = parts_.tokenizer.special("bos_token").value_or(""),
          .eos_token = parts_.tokenizer.special("eos_token").value_or("")};
}

Json ChatProcessor::template_content(const std::string& content) const {
  if (!parts_as_lists_) return content;
  return typed_parts(content, {.images = parts_.media.image_token >= 0,
                               .videos = parts_.media.video_token >= 0,
                               .take_break = mark_takes_break_});
}

Json ChatProcessor::template_messages(const Sample& sample, size_t count) const {
  Json messages = Json::array();
  for (size_t i = 0; i < count; ++i) {
    const auto& message = sample.messages[i];
    messages.push_back({{"role", message.role}, {"content", template_content(message.content)}});
  }
  return messages;
}

void ChatProcessor::check_media(const Sample& sample) const {
  check_kind(sample, kImageMark, "image", parts_.media.image_token, sample.images.size());
  check_kind(sample, kVideoMark, "video", parts_.media.video_token, sample.videos.size());
}

/// The token that the tokenizer puts in front of every text, unless the template wrote it.
void ChatProcessor::put_begin_token(Row& row) const {
  const auto begin = parts_.tokenizer.encode("", {.add_special_tokens = true});
  if (begin.empty() || stops_.contains(begin.front()) || (!row.ids.empty() && row.ids.front() == begin.front())) return;
  row.ids.insert(row.ids.begin(), begin.front());
  row.labels.insert(row.labels.begin(), kIgnored);
}

void ChatProcessor::add_span(Row& row, const TextSpan& span, bool last_turn) const {
  const bool continues = !row.ids.empty();
  auto ids = parts_.tokenizer.encode(span.text, {.continues = continues});
  if (!span.trained) {
    row.ids.insert(row.ids.end(), ids.begin(), ids.end());
    row.labels.resize(row.ids.size(), kIgnored);
    return;
  }
  auto stop = std::ranges::find_if(ids, [&](int32_t id) { return stops_.contains(id); });
  if (stop == ids.end() && last_turn && end_ >= 0) {
    const auto text = std::string_view(span.text).substr(0, span.text.find_last_not_of(" \t\r\n") + 1);
    ids = parts_.tokenizer.encode(text, {.continues = continues});
    ids.push_back(end_);
    stop = ids.end() - 1;
  }
  const auto trained = stop == ids.end() ? ids.size() : static_cast<size_t>(stop - ids.begin()) + 1;
  row.ids.insert(row.ids.end(), ids.begin(), ids.end());
  row.labels.insert(row.labels.end(), ids.begin(), ids.begin() + static_cast<int64_t>(trained));
  row.labels.resize(row.ids.size(), kIgnored);
}

PixelBlock ChatProcessor::prepare_image(const Sample& sample, size_t index, const MediaOptions& options) const {
  return parts_.media.image(shrunk(load_image(sample.images[index], sample.where), options.shrink_to_pixels), options,
                            sample.where);
}

PixelBlock ChatProcessor::prepare_video(const Sample& sample, size_t index, const MediaOptions& options) const {
  const Video& video = sample.videos[index];
  std::vector<Image> frames;
  for (const auto& frame : video.frames) frames.push_back(load_image(frame, sample.where));
  const double fps = video.fps > 0 ? video.fps : options.fps > 0 ? options.fps : kUsualFps;
  return parts_.media.video(frames, fps, options, fmt::format("{}: videos[{}]", sample.where, index));
}

/// Each placeholder that the template wrote, made as many as its medium has features.
void ChatProcessor::expand_media(Row& row, const Sample& sample, const MediaOptions& options) const {
  const MediaRules& rules = parts_.media;
  Row wide;
  size_t images = 0, videos = 0;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    const int32_t id = row.ids[i];
    const bool image = id == rules.image_token, video = id == rules.video_token;
    if (id < 0 || (!image && !video)) {
      wide.ids.push_back(id);
      wide.labels.push_back(row.labels[i]);
      continue;
    }
    const size_t given = image ? sample.images.size() : sample.videos.size();
    if ((image ? images : videos) == given) {
      throw data_error(fmt::format("{}: the chat template writes more than {} {} placeholder(s)", sample.where, given,
                                   image ? "image" : "video"),
                       "the text of a row may not hold the placeholder itself: write <image> or <video>");
    }
    wide.media.push_back(image ? prepare_image(sample, images++, options) : prepare_video(sample, videos++, options));
    const int64_t count = rules.num_tokens(wide.media.back());
    for (int64_t k = 0; k < count; ++k) {
      wide.media_index.push_back(static_cast<int32_t>(wide.ids.size()));
      wide.ids.push_back(id);
      wide.labels.push_back(kIgnored);
    }
  }
  row = std::move(wide);
}

Features ChatProcessor::finish(Row row, const Sample& sample, const ProcessOptions& options, bool labelled) const {
  fit_length(row, options, sample.where);
  if (!labelled) row.labels.clear();
  Features features{.input_ids = std::move(row.ids),
                    .labels = std::move(row.labels),
                    .media = std::move(row.media),
                    .media_index = std::move(row.media_index),
                    .positions = {},
                    .sample = sample};
  if (parts_.media.place) parts_.media.place(features);
  return features;
}

Features ChatProcessor::train_features(const Sample& sample, const ProcessOptions& options) const {
  if (!sample.input_ids.empty()) return token_row_features(sample, options);
  check_media(sample);
  std::vector<bool> trained;
  for (const auto& message : sample.messages) trained.push_back(message.role == "assistant" && message.trained);
  if (std::ranges::find(trained, true) == trained.end()) {
    throw data_error(fmt::format("{}: expected an assistant message to learn from, found none of {} messages",
                                 sample.where, sample.messages.size()));
  }
  const Json messages = template_messages(sample, sample.messages.size());
  std::vector<TextSpan> spans;
  try {
    spans = parts_.chat.render_spans(messages, render_options(false), trained);
  } catch (Error& e) {
    e.add_frame(sample.where);
    throw;
  }
  Row row;
  for (size_t i = 0; i < spans.size(); ++i) add_span(row, spans[i], i + 1 == spans.size());
  put_begin_token(row);
  expand_media(row, sample, options.media);
  return finish(std::move(row), sample, options, true);
}

Features ChatProcessor::prompt_features(const Sample& sample, const ProcessOptions& options) const {
  Row row;
  if (!sample.input_ids.empty()) {  // up to the first token that is a target
    const auto target = std::ranges::find_if(sample.labels, [](int32_t label) { return label != kIgnored; });
    const auto length =
        target == sample.labels.end() ? sample.input_ids.size() : static_cast<size_t>(target - sample.labels.begin());
    row.ids.assign(sample.input_ids.begin(), sample.input_ids.begin() + static_cast<int64_t>(length));
    row.labels.assign(row.ids.size(), kIgnored);
    return finish(std::move(row), sample, options, false);
  }
  check_media(sample);
  const bool answered = !sample.messages.empty() && sample.messages.back().role == "assistant";
  const Json messages = template_messages(sample, sample.messages.size() - (answered ? 1 : 0));
  try {
    row.ids = parts_.tokenizer.encode(parts_.chat.render(messages, render_options(true)));
  } catch (Error& e) {
    e.add_frame(sample.where);
    throw;
  }
  row.labels.assign(row.ids.size(), kIgnored);
  put_begin_token(row);
  expand_media(row, sample, options.media);
  return finish(std::move(row), sample, options, false);
}

}  // namespace lockstep
