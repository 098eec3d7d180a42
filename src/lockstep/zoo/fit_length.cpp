#include "lockstep/zoo/fit_length.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

void fit_length(TokenRow& row, const ProcessOptions& options, const std::string& where) {
  const auto length = static_cast<int64_t>(row.ids.size());
  const int64_t most = options.most_tokens();
  if (most <= 0 || length <= most) return;
  if (options.truncation == Truncation::kDelete) {
    throw data_error(fmt::format("{}: row is {} tokens, {}", where, length, options.limit_text()),
                     "raise --max_length, or let --truncation_strategy right or left cut such rows");
  }
  const int64_t media = count_places(row.media);
  if (media > most) {
    throw data_error(fmt::format("{}: the media alone are {} tokens, {}", where, media, options.limit_text()),
                     "raise --max_length: placeholders of media are never cut");
  }
  int64_t room = most - media;  // for what is not a placeholder
  const int64_t text = length - media;
  const int64_t skipped = options.truncation == Truncation::kLeft ? text - room : 0;
  const std::vector<int> filled = filled_by(row.media, row.ids.size());
  for (MediaBlock& block : row.media) block.places.clear();
  size_t out = 0;
  int64_t seen = 0;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (filled[i] >= 0) {
      row.media[static_cast<size_t>(filled[i])].places.push_back(static_cast<int32_t>(out));
    } else if (seen++ < skipped || room-- <= 0) {
      continue;
    }
    row.ids[out] = row.ids[i];
    if (!row.weights.empty()) row.weights[out] = row.weights[i];
    row.labels[out++] = row.labels[i];
  }
  row.ids.resize(out);
  row.labels.resize(out);
  if (!row.weights.empty()) row.weights.resize(out);
}

}  // namespace lockstep
