#include "lockstep/data/sample_row.h"

#include <algorithm>
#include <string_view>

#include <nlohmann/json.hpp>

namespace lockstep {
namespace {

/// As docs/rows.md reads it.
Json turn_of(const Message& message) {
  Json turn = {{"role", message.role}, {"content", message.content}};
  if (!message.fields.empty()) turn.update(parse_json(message.fields, "fields of a turn"));
  if (!message.trained) turn["loss"] = false;
  if (message.weight != 1) turn["loss_scale"] = message.weight;
  return turn;
}

size_t count(const std::vector<Message>& messages, std::string_view mark) {
  size_t found = 0;
  for (const auto& message : messages) {
    for (size_t at = message.content.find(mark); at != std::string::npos; at = message.content.find(mark, at + 1))
      ++found;
  }
  return found;
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

/// Several accepted answers stand beside a question alone: turns before it are its history, or, where none of them is
/// learnt, a prompt of turns.
void put_accepted(const Sample& sample, Json& row) {
  const auto begin = sample.messages.begin(), end = sample.messages.end() - 1;
  const bool plain = std::all_of(begin, end, [](const Message& one) { return one.fields.empty() && one.trained; });
  row["response"] = sample.references;
  if (!plain || begin == end) {
    for (auto turn = begin; turn != end; ++turn) {
      Message asked = *turn;
      asked.trained = true;  // a prompt's are not learnt as it is
      row["prompt"].push_back(turn_of(asked));
    }
    return;
  }
  auto turn = begin;
  if (turn->role == "system") row["system"] = turn++->content;
  for (; end - turn > 1; turn += 2) row["history"].push_back({turn[0].content, turn[1].content});
  if (turn != end) row["query"] = turn->content;
}

void put_turns(const Sample& sample, Json& row) {
  if (!sample.input_ids.empty()) {
    row["input_ids"] = sample.input_ids;
    row["labels"] = sample.labels;
  } else if (!sample.references.empty()) {
    put_accepted(sample, row);
  } else {
    row["messages"] = Json::array();
    for (const auto& message : sample.messages) row["messages"].push_back(turn_of(message));
  }
}

}  // namespace

Json sample_row(const Sample& sample) {
  Json row = Json::object();
  put_turns(sample, row);
  if (!sample.images.empty()) row["images"] = sample.images;
  for (const auto& video : sample.videos) row["videos"].push_back(video_json(video));
  if (!sample.audios.empty()) row["audios"] = sample.audios;
  if (!sample.tools.empty()) row["tools"] = parse_json(sample.tools, "tools");
  if (!sample.variables.empty()) row["chat_template_kwargs"] = parse_json(sample.variables, "chat_template_kwargs");
  if (sample.min_pixels > 0) row["chat_template_kwargs"]["min_pixels"] = sample.min_pixels;
  if (sample.max_pixels > 0) row["chat_template_kwargs"]["max_pixels"] = sample.max_pixels;
  if (!sample.objects.empty()) row["objects"] = objects_of(sample);
  if (sample.speech) row["speech"] = {{"speaker", sample.speech->speaker}, {"codes", sample.speech->codes}};
  if (!sample.adapter.empty()) row["adapter"] = sample.adapter;
  if (!sample.group.empty()) row["group"] = sample.group;
  if (!sample.id.empty()) row["id"] = sample.id;
  if (!sample.metadata.empty()) row["metadata"] = parse_json(sample.metadata, "metadata");
  return row;
}

}  // namespace lockstep
