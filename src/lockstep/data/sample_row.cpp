#include "lockstep/data/sample_row.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

/// Of values that were read within the usual limits, and stand a few levels deeper in a sample.
constexpr JsonLimits kAgain{.depth = 320};

/// What a text says behind the media in front of it that no text marks, and what they are.
struct Front {
  std::vector<Modality> media;
  std::string rest;
};

Front front_of(const Message& message) {
  Front front{.media = {}, .rest = message.content};
  while (front.media.size() < message.media_in_front) {
    const auto* const kind =
        std::ranges::find_if(kMediaKinds, [&](Modality one) { return front.rest.starts_with(media_mark(one)); });
    if (kind == kMediaKinds.end()) break;
    front.media.push_back(*kind);
    front.rest.erase(0, media_mark(*kind).size());
  }
  return front;
}

size_t count(const std::vector<Message>& messages, std::string_view mark) {
  size_t found = 0;
  for (const auto& message : messages) {
    for (size_t at = message.content.find(mark); at != std::string::npos; at = message.content.find(mark, at + 1))
      ++found;
  }
  return found;
}

/// Whether the row's columns alone say where these are, as media without a mark are put in front of the first question in this
/// order. A mark too many, which a model may have written, would be taken for one of them.
bool stand_without_marks(const Sample& sample, const std::vector<Modality>& media) {
  constexpr std::array kOrder{Modality::kVideo, Modality::kAudio, Modality::kImage};
  const bool whole = std::ranges::all_of(
      media, [&](Modality one) { return count(sample.messages, media_mark(one)) == media_count(sample, one); });
  return whole && std::ranges::is_sorted(media, {}, [&](Modality one) { return std::ranges::find(kOrder, one); });
}

/// Media that no text marks stay without a mark, which a text would be read with as its own: by the row's columns alone before the
/// first question, else as parts.
Json content_of(const Sample& sample, const Message& message) {
  Front front = front_of(message);
  if (front.media.empty()) return message.content;
  const auto first = std::ranges::find(sample.messages, "user", &Message::role);
  if (first != sample.messages.end() && &*first == &message && stand_without_marks(sample, front.media))
    return front.rest;
  Json parts = Json::array();
  for (const Modality kind : front.media) parts.push_back({{"type", modality_name(kind)}});
  if (!front.rest.empty()) parts.push_back({{"type", "text"}, {"text", front.rest}});
  return parts;
}

/// As docs/rows.md reads it. `told`: whether it is learnt.
Json turn_of(const Sample& sample, const Message& message, bool told = true) {
  Json turn = {{"role", message.role}, {"content", content_of(sample, message)}};
  if (!message.fields.empty()) turn.update(parse_json(message.fields, "fields of a turn", kAgain));
  if (!message.trained && told) turn["loss"] = false;
  if (message.weight != 1) turn["loss_scale"] = message.weight;
  return turn;
}

/// Those that the marks in the turns stand for.
Json objects_of(const Sample& sample) {
  const RowObjects& objects = sample.objects;
  const size_t refs = std::min(count(sample.messages, kRefMark), objects.refs.size()),
               boxes = std::min(count(sample.messages, kBoxMark), objects.boxes.size());
  Json out = {{"ref", Json::array()}, {"bbox", Json::array()}, {"image_id", Json::array()}};
  for (size_t i = 0; i < refs; ++i) out["ref"].push_back(objects.refs[i]);
  for (size_t i = 0; i < boxes; ++i) {
    out["bbox"].push_back(objects.boxes[i]);
    out["image_id"].push_back(objects.images.at(i));
  }
  if (objects.of_one) out["bbox_type"] = "norm1";
  return out;
}

/// Whether turns before the last can stand in "system", "history" and "query".
bool are_questions_and_answers(const Sample& sample) {
  const size_t begin = sample.messages.front().role == "system" ? 1 : 0;
  if (begin > 0 && sample.messages.front().content.empty()) return false;  // which would be none
  for (size_t i = 0; i + 1 < sample.messages.size(); ++i) {
    const Message& one = sample.messages[i];
    if (!one.fields.empty() || !one.trained || one.weight != 1) return false;
    if (i >= begin && one.role != ((i - begin) % 2 == 0 ? "user" : "assistant")) return false;
  }
  return true;
}

/// Several accepted answers stand beside a question alone: turns before it are its history, or, where none of them is
/// learnt, a prompt of turns.
void put_accepted(const Sample& sample, Json& row) {
  const auto begin = sample.messages.begin(), end = sample.messages.end() - 1;
  row["response"] = sample.references;
  if (begin != end && !are_questions_and_answers(sample)) {
    // a prompt's are not learnt as it is
    for (auto turn = begin; turn != end; ++turn) row["prompt"].push_back(turn_of(sample, *turn, /*told=*/false));
    return;
  }
  auto turn = begin;
  if (turn != end && turn->role == "system") row["system"] = content_of(sample, *turn++);
  for (; end - turn > 1; turn += 2)
    row["history"].push_back({content_of(sample, turn[0]), content_of(sample, turn[1])});
  if (turn != end) row["query"] = content_of(sample, *turn);
}

void put_turns(const Sample& sample, Json& row) {
  if (!sample.input_ids.empty()) {
    row["input_ids"] = sample.input_ids;
    row["labels"] = sample.labels;
  } else if (!sample.references.empty()) {
    put_accepted(sample, row);
  } else {
    row["messages"] = Json::array();
    for (const auto& message : sample.messages) row["messages"].push_back(turn_of(sample, message));
  }
}

}  // namespace

Json sample_row(const Sample& sample) {
  Json row = Json::object();
  put_turns(sample, row);
  if (!sample.images.empty()) row["images"] = sample.images;
  for (const auto& video : sample.videos) row["videos"].push_back(video_json(video));
  if (!sample.audios.empty()) row["audios"] = sample.audios;
  if (!sample.tools.empty()) row["tools"] = parse_json(sample.tools, "tools", kAgain);
  if (!sample.variables.empty())
    row["chat_template_kwargs"] = parse_json(sample.variables, "chat_template_kwargs", kAgain);
  if (sample.min_pixels > 0) row["chat_template_kwargs"]["min_pixels"] = sample.min_pixels;
  if (sample.max_pixels > 0) row["chat_template_kwargs"]["max_pixels"] = sample.max_pixels;
  if (!sample.objects.empty()) row["objects"] = objects_of(sample);
  if (sample.speech) row["speech"] = {{"speaker", sample.speech->speaker}, {"codes", sample.speech->codes}};
  if (!sample.adapter.empty()) row["adapter"] = sample.adapter;
  if (!sample.group.empty()) row["group"] = sample.group;
  if (!sample.id.empty()) row["id"] = sample.id;
  if (!sample.metadata.empty()) row["metadata"] = parse_json(sample.metadata, "metadata", kAgain);
  return row;
}

}  // namespace lockstep
