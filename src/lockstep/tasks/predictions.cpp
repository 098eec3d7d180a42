#include "lockstep/tasks/predictions.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/processor.h"
#include "lockstep/metric/characters.h"

namespace lockstep {
namespace {

std::string last_question(const Sample& sample) {
  if (is_text_alone(sample)) return sample.messages.back().content;  // which is continued
  for (auto it = sample.messages.rbegin(); it != sample.messages.rend(); ++it) {
    if (it->role == "user") return it->content;
  }
  return {};
}

std::string line_of(const Json& row) { return row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json label_of(const Sample& sample) {
  if (!sample.references.empty()) return sample.references;
  const std::string expected = expected_response(sample);
  return expected.empty() ? Json() : Json(expected);
}

}  // namespace

std::string cut_words(int64_t cut, int64_t answered, int64_t max_new_tokens) {
  return fmt::format(
      "{} of the {} answers did not come to their end: --max_new_tokens {} cut them, or the model's positions", cut,
      answered, max_new_tokens);
}

References references_of(const Sample& sample) {
  References out = sample.references;
  if (out.empty()) out.push_back(expected_response(sample));
  std::erase_if(out, [](const std::string& text) { return trimmed(text).empty(); });
  return out;
}

Json prediction_row(const Sample& sample, const std::string& response) {
  Json row = {{"row", sample.row},
              {"where", sample.where},
              {"prompt", last_question(sample)},
              {"response", response},
              {"label", label_of(sample)}};
  if (!sample.images.empty()) row["images"] = sample.images;
  for (const auto& video : sample.videos) row["videos"].push_back(video_json(video));
  if (!sample.audios.empty()) row["audios"] = sample.audios;
  if (!sample.group.empty()) row["group"] = sample.group;
  if (!sample.id.empty()) row["id"] = sample.id;
  if (!sample.metadata.empty()) row["metadata"] = parse_json(sample.metadata, "metadata");
  return row;
}

Predictions::Predictions(const Dataset& dataset, const Tokenizer& tokenizer, Options options)
    : dataset_(dataset), tokenizer_(tokenizer), options_(std::move(options)), means_(options_.metrics) {}

void Predictions::add_all(const std::vector<Generated>& answers, const std::map<int64_t, std::string>& skipped) {
  auto answer = answers.begin();
  const auto whole = [&](int64_t row) {
    if (answer != answers.end() && answer->row == row) return add_answer(*answer++);
    const auto why = skipped.find(row);
    Json line = prediction_row(dataset_.sample_or_name(row), "");
    line.erase("response");
    line.erase("label");
    add_unusable(std::move(line), why == skipped.end() ? "no answer" : why->second);
  };
  dataset_.in_file_order(whole, [&](const BrokenRow& broken) {
    add_unusable({{"row", nullptr}, {"where", broken.where}}, broken.why);
  });
  figures_.metrics = means_.results();
  for (const auto& [name, counts] : groups_) {
    if (!name.empty())
      figures_.groups.emplace_back(name, static_cast<double>(counts.first) / static_cast<double>(counts.second));
  }
}

void Predictions::add_answer(const Generated& answer) {
  const Sample sample = dataset_.sample(answer.row);
  const std::string response = trimmed(tokenizer_.decode(answer.tokens, options_.skip_special_tokens));
  ++figures_.answered;
  figures_.cut += answer.stopped ? 0 : 1;
  if (options_.keep_text || options_.rows != nullptr) {
    const std::string line = line_of(prediction_row(sample, response));
    if (options_.keep_text) text_ += line;
    if (options_.rows != nullptr) options_.rows->write(line);
  }
  const References references = references_of(sample);
  if (references.empty()) return;
  means_.add(response, references);
  const bool exact = exact_match(response, references) > 0;
  ++figures_.rows;
  figures_.exact += exact ? 1 : 0;
  auto& group = groups_[sample.group];
  group.first += exact ? 1 : 0;
  ++group.second;
  if (static_cast<int64_t>(figures_.samples.size()) >= options_.show) return;
  figures_.samples.push_back({.prompt = last_question(sample),
                              .expected = trimmed(references.front()),
                              .predicted = response,
                              .image_path = sample.images.empty() ? "" : sample.images[0],
                              .exact = exact});
}

void Predictions::add_unusable(Json line, const std::string& why) {
  ++figures_.skipped;
  if (figures_.first_skipped.empty()) figures_.first_skipped = line["where"].get<std::string>() + ": " + why;
  if (!options_.keep_text) return;
  line["error"] = why;
  text_ += line_of(line);
}

}  // namespace lockstep
