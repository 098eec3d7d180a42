#include "lockstep/data/row_tokens.h"

#include <cstdint>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/fit_length.h"
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
  sample.labels = labelled ? read_ids(row, "labels", where, kNotLearnt) : sample.input_ids;
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
  TokenRow row{.ids = sample.input_ids, .labels = sample.labels, .media = {}};
  fit_length(row, options, sample.where);
  return {.input_ids = std::move(row.ids), .labels = std::move(row.labels), .sample = sample};
}

}  // namespace lockstep
