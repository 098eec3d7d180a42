#include "lockstep/zoo/chat_processor.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/row_tokens.h"
#include "lockstep/zoo/fit_length.h"

namespace lockstep {
namespace {

constexpr int32_t kIgnored = -100;
constexpr std::string_view kMark = "<image>";

std::optional<int32_t> special_id(const Tokenizer& tokenizer, std::string_view role) {
  const auto token = tokenizer.special(role);
  return token ? tokenizer.id_of(*token) : std::nullopt;
}

/// A mark usually stands on its own line: that one line break belongs to the mark, not to the text.
std::string_view without_line_break(std::string_view text, bool after_mark, bool before_mark) {
  if (after_mark && text.starts_with('\n')) text.remove_prefix(1);
  if (before_mark && text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

/// "a <image> b" -> [{text}, {image}, {text}].
Json typed_parts(std::string_view content) {
  Json parts = Json::array();
  for (size_t begin = 0;;) {
    const size_t mark = content.find(kMark, begin);
    const bool found = mark != std::string_view::npos;
    const auto text =
        without_line_break(content.substr(begin, found ? mark - begin : std::string_view::npos), begin > 0, found);
    if (!text.empty() || (!found && parts.empty())) parts.push_back({{"type", "text"}, {"text", text}});
    if (!found) return parts;
    parts.push_back({{"type", "image"}});
    begin = mark + kMark.size();
  }
}

size_t marks_in(std::string_view content) {
  size_t count = 0;
  for (size_t at = content.find(kMark); at != std::string_view::npos; at = content.find(kMark, at + kMark.size()))
    ++count;
  return count;
}

}  // namespace

/// Ids and labels in the making.
struct ChatProcessor::Row {
  std::vector<int32_t> ids, labels;
  std::vector<PixelBlock> images;
};

ChatProcessor::ChatProcessor(ChatParts parts) : parts_(std::move(parts)) {
  const std::string& source = parts_.chat.source();
  parts_as_lists_ = parts_.images.token >= 0 &&
                    (source.find("'type'") != std::string::npos || source.find("\"type\"") != std::string::npos ||
                     source.find(".type") != std::string::npos);
  stops_.insert(parts_.stop_tokens.begin(), parts_.stop_tokens.end());
  const auto end = special_id(parts_.tokenizer, "eos_token");
  if (end) stops_.insert(*end);
  for (const int32_t id : turn_ends()) stops_.insert(id);
  end_ = end ? *end : stops_.empty() ? -1 : *stops_.begin();
  pad_ = special_id(parts_.tokenizer, "pad_token").value_or(std::max(0, end_));
}

/// What the template writes behind an assistant's words, as far as it is a special token.
std::vector<int32_t> ChatProcessor::turn_ends() const {
  const auto content = [&](const char* text) { return parts_as_lists_ ? typed_parts(text) : Json(text); };
  const Json probe = {{{"role", "user"}, {"content", content("a")}},
                      {{"role", "assistant"}, {"content", content("b")}}};
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

RenderOptions ChatProcessor::render_options(bool generation_prompt) const {
  return {.add_generation_prompt = generation_prompt,
          .bos_token = parts_.tokenizer.special("bos_token").value_or(""),
          .eos_token = parts_.tokenizer.special("eos_token").value_or("")};
}

Json ChatProcessor::template_messages(const Sample& sample, size_t count) const {
  Json messages = Json::array();
  for (size_t i = 0; i < count; ++i) {
    const auto& message = sample.messages[i];
    messages.push_back(
        {{"role", message.role}, {"content", parts_as_lists_ ? typed_parts(message.content) : Json(message.content)}});
  }
  return messages;
}

void ChatProcessor::check_images(const Sample& sample) const {
  if (parts_.images.token < 0) {
    if (sample.images.empty()) return;
    throw data_error(fmt::format("{}: expected text alone (this model reads no images), found {} image(s)",
                                 sample.where, sample.images.size()),
                     "take a model with vision, or leave the images out of the row");
  }
  size_t marks = 0;
  for (const auto& message : sample.messages) marks += marks_in(message.content);
  if (marks == sample.images.size()) return;
  throw data_error(fmt::format("{}: expected one <image> mark for each image, found {} mark(s) and {} image(s)",
                               sample.where, marks, sample.images.size()));
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

void ChatProcessor::expand_images(Row& row, const Sample& sample) const {
  if (parts_.images.token < 0) return;
  Row wide;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.ids[i] != parts_.images.token) {
      wide.ids.push_back(row.ids[i]);
      wide.labels.push_back(row.labels[i]);
      continue;
    }
    const size_t next = wide.images.size();
    if (next == sample.images.size()) {
      throw data_error(fmt::format("{}: the chat template writes more than {} image placeholder(s)", sample.where,
                                   sample.images.size()));
    }
    wide.images.push_back(parts_.images.prepare(load_image(sample.images[next], sample.where)));
    const auto count = static_cast<size_t>(parts_.images.num_tokens(wide.images.back()));
    wide.ids.insert(wide.ids.end(), count, parts_.images.token);
    wide.labels.resize(wide.ids.size(), kIgnored);
  }
  row = std::move(wide);
}

Features ChatProcessor::finish(Row row, const Sample& sample, const ProcessOptions& options, bool labelled) const {
  fit_length(row.ids, row.labels, parts_.images.token, options, sample.where);
  if (!labelled) row.labels.clear();
  return {.input_ids = std::move(row.ids),
          .labels = std::move(row.labels),
          .images = std::move(row.images),
          .sample = sample};
}

Features ChatProcessor::train_features(const Sample& sample, const ProcessOptions& options) const {
  if (!sample.input_ids.empty()) return token_row_features(sample, options);
  check_images(sample);
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
  expand_images(row, sample);
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
  check_images(sample);
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
  expand_images(row, sample);
  return finish(std::move(row), sample, options, false);
}

}  // namespace lockstep
