#include "lockstep/zoo/chat_processor.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/fit_length.h"
#include "lockstep/data/row_tokens.h"
#include "lockstep/zoo/asked_row.h"
#include "lockstep/zoo/learnt_messages.h"
#include "lockstep/zoo/mark_parts.h"
#include "lockstep/zoo/plain_text.h"
#include "lockstep/zoo/row_rendering.h"
#include "lockstep/zoo/spelled_row.h"

namespace lockstep {
namespace {

std::optional<int32_t> special_id(const Tokenizer& tokenizer, std::string_view role) {
  const auto token = tokenizer.special(role);
  return token ? tokenizer.id_of(*token) : std::nullopt;
}

size_t count_of(std::string_view content, std::string_view mark) {
  size_t count = 0;
  for (size_t at = content.find(mark); at != std::string_view::npos; at = content.find(mark, at + mark.size())) ++count;
  return count;
}

constexpr std::string_view kEmptyThinking = "<think>\n\n</think>\n\n";

}  // namespace

ChatProcessor::ChatProcessor(ChatParts parts) : parts_(std::move(parts)) {
  const std::string& source = parts_.chat.source();
  parts_as_lists_ = !parts_.media.kinds.empty() &&
                    (source.find("'type'") != std::string::npos || source.find("\"type\"") != std::string::npos ||
                     source.find(".type") != std::string::npos);
  mark_takes_break_ = !parts_as_lists_ || breaks_line_after_image();
  for (const auto& [kind, rules] : parts_.media.kinds) {
    frames_[kind] = frame_of(kind, rules.placeholder);
    MediumRules& plain = plain_media_[kind] = rules;
    if (parts_as_lists_) plain.placeholder = frames_[kind].before + plain.placeholder + frames_[kind].after;
  }
  stops_.insert(parts_.stop_tokens.begin(), parts_.stop_tokens.end());
  const auto end = special_id(parts_.tokenizer, "eos_token");
  if (end) stops_.insert(*end);
  for (const int32_t id : turn_ends()) stops_.insert(id);
  end_ = end ? *end : stops_.empty() ? -1 : *stops_.begin();
  pad_ = special_id(parts_.tokenizer, "pad_token").value_or(std::max(0, end_));
}

/// What the template writes behind an assistant's words, as far as it is a special token.
std::vector<int32_t> ChatProcessor::turn_ends() const {
  const Json probe = {{{"role", "user"}, {"content", template_content({.role = "user", .content = "a"})}},
                      {{"role", "assistant"}, {"content", template_content({.role = "assistant", .content = "b"})}}};
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

/// What stands between a placeholder and the texts beside it in a user's message.
MediumFrame ChatProcessor::frame_of(Modality kind, const std::string& placeholder) const {
  const std::string before = "Xprobe0X", after = "Yprobe1Y";
  const Json content =
      typed_parts(before + std::string(media_mark(kind)) + after, {.kinds = {kind}, .take_break = false});
  if (!parts_as_lists_) return {};
  std::string text;
  try {
    text = parts_.chat.render({{{"role", "user"}, {"content", content}}}, render_options(true));
  } catch (const UserError&) {
    return {};
  }
  const size_t begin = text.find(before), at = text.find(placeholder), end = text.find(after);
  if (begin == std::string::npos || end == std::string::npos || at == std::string::npos || at < begin || at > end)
    return {};
  const size_t from = begin + before.size(), behind = at + placeholder.size();
  return {.before = text.substr(from, at - from), .after = text.substr(behind, end - behind)};
}

bool ChatProcessor::breaks_line_after_image() const {
  const Json probe = {
      {{"role", "user"}, {"content", typed_parts("<image>What?", {.kinds = {Modality::kImage}, .take_break = false})}}};
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
          .eos_token = parts_.tokenizer.special("eos_token").value_or(""),
          .named = &parts_.tokenizer.named()};
}

Json ChatProcessor::template_content(const Message& message) const {
  std::string text = message.content;
  if (parts_.media.front_ends_lines) text = front_on_own_lines(std::move(text), message.media_in_front);
  MarkRules rules{.kinds = {}, .take_break = mark_takes_break_};
  for (const auto& [kind, medium] : parts_.media.kinds) {
    rules.kinds.push_back(kind);
    if (!parts_as_lists_ && medium.placeholder != media_mark(kind))
      text = replaced(std::move(text), media_mark(kind), medium);
  }
  return parts_as_lists_ ? typed_parts(text, rules) : Json(text);
}

Json ChatProcessor::template_messages(const Sample& sample, size_t count) const {
  Json messages = Json::array();
  for (size_t i = 0; i < count; ++i) {
    const auto& message = sample.messages[i];
    messages.push_back({{"role", message.role}, {"content", template_content(message)}});
    if (!message.fields.empty()) messages.back().update(parse_json_or_discard(message.fields));
  }
  return messages;
}

std::vector<TextSpan> ChatProcessor::rendered_spans(const Sample& sample, const std::vector<bool>& trained) const {
  require_chat_template();
  const RowRendering rendering(sample, parts_.chat);
  try {
    return parts_.chat.render_spans(template_messages(sample, sample.messages.size()),
                                    rendering.options(render_options(false)), trained);
  } catch (Error& e) {
    e.add_frame(sample.where);
    throw;
  }
}

std::string ChatProcessor::rendered_prompt(const Sample& sample, size_t count) const {
  require_chat_template();
  const RowRendering rendering(sample, parts_.chat);
  try {
    return parts_.chat.render(template_messages(sample, count), rendering.options(render_options(true)));
  } catch (Error& e) {
    e.add_frame(sample.where);
    throw;
  }
}

std::map<Modality, size_t> ChatProcessor::marks_in(const Sample& sample, size_t messages) const {
  std::map<Modality, size_t> marks;
  for (const auto& [kind, rules] : parts_.media.kinds) {
    for (size_t i = 0; i < messages; ++i) marks[kind] += count_of(sample.messages[i].content, media_mark(kind));
  }
  return marks;
}

void ChatProcessor::require_chat_template() const {
  if (!parts_.without_template.empty())
    (void)ChatTemplate::load(parts_.without_template);  // which says what it looked for
}

/// As many marks as media of each kind, and only those kinds that the model takes.
void ChatProcessor::check_media(const Sample& sample) const {
  auto marks = marks_in(sample, sample.messages.size());
  for (const Modality kind : kMediaKinds) {
    const size_t given = media_count(sample, kind);
    const std::string_view name = modality_name(kind);
    if (!parts_.media.kinds.contains(kind)) {
      if (given == 0) continue;
      throw data_error(fmt::format("{}: expected no {}s (this model reads no {}s), found {} {}(s)", sample.where, name,
                                   name, given, name),
                       fmt::format("take a model that reads {}s, or leave them out of the row", name));
    }
    if (marks[kind] == given) continue;
    throw data_error(fmt::format("{}: expected one {} mark for each {}, found {} mark(s) and {} {}(s)", sample.where,
                                 media_mark(kind), name, marks[kind], given, name));
  }
}

/// Speech is of the last answer, which is learnt whole.
void ChatProcessor::check_speech(const Sample& sample) const {
  if (!sample.speech) return;
  if (!parts_.speech) {
    throw data_error(
        fmt::format("{}: field \"speech\": expected none (this model has no talker), found one", sample.where),
        "take a model that talks, or leave speech out of the row");
  }
  const Message& last = sample.messages.back();
  const bool plain = std::ranges::none_of(parts_.media.kinds, [&](const auto& kind) {
    return last.content.find(media_mark(kind.first)) != std::string::npos;
  });
  if (last.role == "assistant" && last.trained && plain) return;
  throw data_error(
      fmt::format("{}: field \"speech\": expected the last message to be what is said: an assistant's, trained, "
                  "without media; found one of role \"{}\"{}{}",
                  sample.where, last.role, last.trained ? "" : ", not trained", plain ? "" : ", with media"));
}

/// The words of the last message that is learnt.
AnswerSpan ChatProcessor::last_answer(const Features& features) const {
  const auto& labels = features.labels;
  size_t end = labels.size();
  while (end > 0 && labels[end - 1] == kNotLearnt) --end;
  AnswerSpan answer{.begin = end, .end = end};
  while (answer.begin > 0 && labels[answer.begin - 1] != kNotLearnt) --answer.begin;
  if (answer.begin < end && stops_.contains(features.input_ids[end - 1])) --answer.end;
  return answer;
}

/// What the tokenizer puts in front of every text, unless the template wrote it.
void ChatProcessor::put_begin_tokens(SpelledRow& row) const {
  const auto& before = parts_.tokenizer.frame().before;
  if (before.empty() || (!row.ids.empty() && row.ids.front() == before.front())) return;
  row.put_in_front(before);
}

void ChatProcessor::add_span(SpelledRow& row, const TextSpan& span, MediaSpeller& speller, bool last_turn,
                             double weight) const {
  const bool continues = row.ids.empty() ? row.continues : !row.ends_apart;
  auto pieces = speller.spell(span.text);
  SpelledTokens tokens = encode(parts_.tokenizer, pieces, continues);
  if (!span.trained) return row.add(tokens);
  const auto is_stop = [&](int32_t id) { return stops_.contains(id); };
  auto stop = std::ranges::find_if(tokens.ids, is_stop);
  if (stop == tokens.ids.end() && last_turn && parts_.adds_end && end_ >= 0) {
    if (!pieces.empty()) {
      std::string& text = pieces.back().text;
      text.resize(text.find_last_not_of(" \t\r\n") + 1);
      pieces.back().tail = 0;
      pieces.back().lead = std::min(pieces.back().lead, text.size());
    }
    tokens = encode(parts_.tokenizer, pieces, continues);
    tokens.ids.push_back(end_);
    tokens.filled.push_back(-1);
    tokens.marks.push_back(false);
    stop = tokens.ids.end() - 1;
  }
  const auto trained =
      stop == tokens.ids.end() ? tokens.ids.size() : static_cast<size_t>(stop - tokens.ids.begin()) + 1;
  const size_t begin = row.ids.size();
  row.add(tokens);
  for (size_t i = 0; i < trained; ++i) {
    if (tokens.marks[i]) continue;  // of a medium: no assistant writes them
    row.labels[begin + i] = tokens.ids[i];
    row.weights[begin + i] = static_cast<float>(weight);
  }
}

/// An answer that begins with thoughts that are none: of those nothing is learnt.
void ChatProcessor::forget_empty_thinking(SpelledRow& row, size_t begin, std::string_view text, bool continues) const {
  if (!text.starts_with(kEmptyThinking)) return;
  const auto ids = parts_.tokenizer.encode(std::string(kEmptyThinking), {.continues = continues});
  for (size_t i = 0; i < ids.size() && begin + i < row.ids.size() && row.ids[begin + i] == ids[i]; ++i) {
    row.labels[begin + i] = kNotLearnt;
  }
}

Features ChatProcessor::finish(SpelledRow row, const Sample& sample, const ProcessOptions& options,
                               bool labelled) const {
  TokenRow tokens{.ids = std::move(row.ids), .labels = std::move(row.labels), .media = std::move(row.media)};
  tokens.history = row.history;
  if (options.taught.of == Taught::Of::kAll) tokens.all = std::move(row.all);
  if (std::ranges::any_of(row.weights, [](float weight) { return weight != 1; }))
    tokens.weights = std::move(row.weights);
  for (size_t i = 0; i < row.filled.size(); ++i) {
    if (row.filled[i] >= 0) tokens.media[static_cast<size_t>(row.filled[i])].places.push_back(static_cast<int32_t>(i));
  }
  fit_length(tokens, options, sample.where);
  if (!labelled) tokens.labels.clear();
  if (!labelled) tokens.weights.clear();
  Features features{.input_ids = std::move(tokens.ids),
                    .labels = std::move(tokens.labels),
                    .weights = std::move(tokens.weights),
                    .media = std::move(tokens.media),
                    .positions = {},
                    .sample = sample};
  if (parts_.media.place) parts_.media.place(features);
  return features;
}

Features ChatProcessor::train_features(const Sample& given, const ProcessOptions& asked) const {
  if (!given.input_ids.empty()) return token_row_features(given, asked);
  const ProcessOptions options = options_of(given, asked, parts_.media);
  const std::optional<Sample> changed = asked_row(given, options, parts_);
  const Sample& sample = changed ? *changed : given;
  check_media(sample);
  check_speech(sample);
  std::vector<bool> trained = learnt_messages(sample, options.taught.of);
  const auto first_learnt = std::ranges::find(trained, true) - trained.begin();
  SpelledRow row;
  if (options.truncation == Truncation::kTurns && options.taught.of_the_end()) {
    trained = learnt_messages(sample, Taught::Of::kAnswers);
    row.history = 0;
  }
  row.continues = sample.continues;
  const bool plain = !options.use_chat_template;
  const std::vector<TextSpan> spans =
      plain ? plain_spans(sample, sample.messages.size(), plain_media_, trained) : rendered_spans(sample, trained);
  MediaSpeller speller(parts_.media, sample, options.media, &frames_);
  for (size_t i = 0; i < spans.size(); ++i) {
    const size_t begin = row.ids.size();
    const int message = spans[i].message;
    const double weight = message < 0 ? 1 : sample.messages[static_cast<size_t>(message)].weight;
    add_span(row, spans[i], speller, !plain && i + 1 == spans.size(), weight);
    if (spans[i].trained && !options.taught.empty_thinking) forget_empty_thinking(row, begin, spans[i].text, begin > 0);
    if (row.history && spans[i].trained && message < first_learnt) row.history = row.ids.size();
  }
  if (plain && end_ >= 0 && !sample.goes_on) row.add_end(end_, spans.back().trained);
  speller.check_all_stand(marks_in(sample, sample.messages.size()));
  row.media = std::move(speller.blocks());
  if ((plain || parts_.begins_conversations) && !sample.continues) put_begin_tokens(row);
  const size_t tokens = row.ids.size();
  Features features = finish(std::move(row), sample, options, true);
  if (!options.speaks || !sample.speech) return features;
  if (features.input_ids.size() < tokens) {
    throw data_error(fmt::format("{}: expected a row with speech to fit whole, found {} tokens where {}", sample.where,
                                 tokens, options.limit_text()),
                     "a longer --max_length");
  }
  features.speech = spoken_steps(features, last_answer(features), *sample.speech, *parts_.speech);
  return features;
}

Features ChatProcessor::prompt_features(const Sample& given, const ProcessOptions& asked) const {
  SpelledRow row;
  ProcessOptions options = options_of(given, asked, parts_.media);
  const bool alone = is_text_alone(given);
  if (alone) options.system.clear();
  const std::optional<Sample> changed = asked_row(given, options, parts_);
  const Sample& sample = changed ? *changed : given;
  if (!sample.input_ids.empty()) {  // up to the first token that is a target; all of a text that is one
    const auto target = sample.labels == sample.input_ids
                            ? sample.labels.end()
                            : std::ranges::find_if(sample.labels, [](int32_t label) { return label != kNotLearnt; });
    const auto length =
        target == sample.labels.end() ? sample.input_ids.size() : static_cast<size_t>(target - sample.labels.begin());
    row.ids.assign(sample.input_ids.begin(), sample.input_ids.begin() + static_cast<int64_t>(length));
    row.labels.assign(row.ids.size(), kNotLearnt);
    row.weights.assign(row.ids.size(), 1);
    row.filled.assign(row.ids.size(), -1);
    return finish(std::move(row), sample, options, false);
  }
  check_media(sample);
  const bool answered = !sample.messages.empty() && sample.messages.back().role == "assistant";
  const size_t count = sample.messages.size() - (answered && !alone ? 1 : 0);
  MediaSpeller speller(parts_.media, sample, options.media, &frames_);
  std::string text;
  const bool plain = !options.use_chat_template || alone;
  if (!plain) {
    text = rendered_prompt(sample, count);
  } else {
    for (const auto& span : plain_spans(sample, count, plain_media_)) text += span.text;
  }
  row.add(encode(parts_.tokenizer, speller.spell(text), /*continues=*/false));
  speller.check_all_stand(marks_in(sample, count));
  row.media = std::move(speller.blocks());
  if (plain || parts_.begins_conversations) put_begin_tokens(row);
  if (!plain || !options.ends_texts) return finish(std::move(row), sample, options, false);
  const auto& after = parts_.tokenizer.frame().after;
  for (const int32_t id : after) row.add_end(id, false);
  const size_t whole = row.ids.size();
  Features features = finish(std::move(row), sample, options, false);
  // A text that is cut gives way to its end.
  if (features.input_ids.size() < whole && features.input_ids.size() >= after.size() && features.media.empty())
    std::ranges::copy_backward(after, features.input_ids.end());
  return features;
}

}  // namespace lockstep
