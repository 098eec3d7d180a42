#include "lockstep/data/row_tokens.h"

#include <cstdint>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/row_media.h"

namespace lockstep {
namespace {

std::vector<int32_t> read_ids(const Json& row, const char* name, const std::string& where, int64_t least) {
  const Json& list = row.at(name);
  if (!list.is_array() || list.empty()) throw field_error(where, name, "a list of token ids, at least one", list);
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const auto& id : list) {
    const bool fits = id.is_number_integer() && id.get<int64_t>() >= least &&
                      id.get<int64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits)
      throw field_error(where, fmt::format("{}[{}]", name, ids.size()), fmt::format("a token id from {}", least), id);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

bool is_token_row(const Json& row) { return row.contains("input_ids"); }

void read_token_row(const Json& row, const std::string& where, Sample& sample) {
  sample.input_ids = read_ids(row, "input_ids", where, 0);
  const bool labelled = row.contains("labels") && !row.at("labels").is_null();
  sample.labels = labelled ? read_ids(row, "labels", where, -100) : sample.input_ids;
  if (sample.labels.size() != sample.input_ids.size()) {
    throw data_error(fmt::format("{}: field \"labels\": expected {} values, as many as input_ids, found {}", where,
                                 sample.input_ids.size(), sample.labels.size()));
  }
  for (const char* media : {"images", "image", "videos", "video", "audios", "audio"}) {
    if (!row.contains(media) || row.at(media).empty()) continue;
    throw field_error(where, media, "no pictures beside input_ids (give messages, so that they can be placed)",
                      row.at(media));
  }
  if (row.contains("speech") && !row.at("speech").is_null()) {
    throw field_error(where, "speech", "none beside input_ids (give messages: speech is of the last answer's words)",
                      row.at("speech"));
  }
}

Features token_row_features(const Sample& sample, const ProcessOptions& options) {
  Features features{.input_ids = sample.input_ids, .labels = sample.labels, .sample = sample};
  const auto length = static_cast<int64_t>(features.input_ids.size());
  const int64_t most = options.most_tokens();
  if (most <= 0 || length <= most) return features;
  const auto extra = static_cast<std::ptrdiff_t>(length - most);
  switch (options.truncation) {
    case Truncation::kDelete:
      throw data_error(fmt::format("{}: {} tokens, {}", sample.where, length, options.limit_text()));
    case Truncation::kLeft:
      features.input_ids.erase(features.input_ids.begin(), features.input_ids.begin() + extra);
      features.labels.erase(features.labels.begin(), features.labels.begin() + extra);
      break;
    case Truncation::kRight:
      features.input_ids.erase(features.input_ids.end() - extra, features.input_ids.end());
      features.labels.erase(features.labels.end() - extra, features.labels.end());
      break;
  }
  return features;
}

}  // namespace lockstep
