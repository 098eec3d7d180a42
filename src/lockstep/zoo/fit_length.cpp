#include "lockstep/zoo/fit_length.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep {

void fit_length(std::vector<int32_t>& ids, std::vector<int32_t>& labels, int32_t kept, const ProcessOptions& options,
                const std::string& where) {
  const auto length = static_cast<int64_t>(ids.size());
  if (options.max_length <= 0 || length <= options.max_length) return;
  if (options.truncation == Truncation::kDelete) {
    throw data_error(fmt::format("{}: row is {} tokens, --max_length is {}", where, length, options.max_length),
                     "raise --max_length, or let --truncation_strategy right or left cut such rows");
  }
  const auto media = kept < 0 ? 0 : std::ranges::count(ids, kept);
  if (media > options.max_length) {
    throw data_error(
        fmt::format("{}: the images alone are {} tokens, --max_length is {}", where, media, options.max_length),
        "raise --max_length: placeholders of media are never cut");
  }
  int64_t room = options.max_length - media;  // for what is not a placeholder
  const int64_t text = length - media;
  const int64_t skipped = options.truncation == Truncation::kLeft ? text - room : 0;
  size_t out = 0;
  int64_t seen = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool is_media = kept >= 0 && ids[i] == kept;
    if (!is_media && (seen++ < skipped || room-- <= 0)) continue;
    ids[out] = ids[i];
    labels[out++] = labels[i];
  }
  ids.resize(out);
  labels.resize(out);
}

}  // namespace lockstep
