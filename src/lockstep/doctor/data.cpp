#include "lockstep/doctor/data.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "lockstep/data/image.h"
#include "lockstep/data/video.h"

namespace lockstep {
namespace {

/// Rows of equal distance, the first and the last among them.
std::vector<int64_t> spread(int64_t size, int64_t most) {
  std::vector<int64_t> rows;
  const int64_t count = std::min(size, most);
  for (int64_t i = 0; i < count; ++i) rows.push_back(count == 1 ? 0 : i * (size - 1) / (count - 1));
  return rows;
}

void look_at_row(const Dataset& rows, int64_t row, const DataOptions& options, DataFacts& facts) {
  const Sample sample = rows.sample(row);
  if (options.processor == nullptr) {
    for (const auto& image : sample.images) (void)load_image(image, sample.where);
    for (const auto& video : sample.videos) {
      for (const auto& frame : video.frames) (void)load_image(frame, sample.where);
      if (!video.file.empty())
        (void)VideoFile(video.file, sample.where, {.search_path = options.process.media.program_path});
    }
    facts.media += static_cast<int64_t>(sample.images.size() + sample.videos.size() + sample.audios.size());
    return;
  }
  const Features features = options.processor->train_features(sample, options.process);
  facts.media += static_cast<int64_t>(features.media.size());
  const auto tokens = static_cast<int64_t>(features.input_ids.size());
  if (tokens <= facts.longest_tokens) return;
  facts.longest_tokens = tokens;
  facts.longest_where = sample.where;
}

std::string counted(int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

}  // namespace

DataFacts data_facts(const std::string& file, const DataOptions& options) {
  DatasetOptions lenient = options.dataset;
  lenient.strict = false;  // all broken rows are counted
  lenient.may_be_empty = true;
  const Dataset rows({file}, lenient);
  DataFacts facts{.file = file,
                  .rows = rows.size(),
                  .broken = static_cast<int64_t>(rows.broken().size()),
                  .tokens_made = options.processor != nullptr,
                  .max_positions = options.max_positions,
                  .strict = options.dataset.strict};
  if (facts.broken > 0) facts.first_broken = rows.broken()[0].where + ": " + rows.broken()[0].why;
  for (const auto& text : rows.notices()) facts.notices += "; " + text;
  const auto places = spread(rows.size(), kRowsLookedAt);
  for (const int64_t row : places) {
    try {
      look_at_row(rows, row, options, facts);
    } catch (const UserError& error) {
      if (facts.unusable++ == 0) facts.first_unusable = error.message();
    }
    ++facts.looked;
    if (options.progress) options.progress(facts.looked, static_cast<int64_t>(places.size()));
  }
  return facts;
}

CheckResult judge_data(const DataFacts& facts) {
  const std::string repair =
      "mend or remove what is named; --strict true makes a run stop there instead of skipping it";
  if (facts.rows == 0) {
    return failure(facts.file,
                   facts.broken == 0
                       ? "no row"
                       : fmt::format("no whole row, {} broken; the first: {}", facts.broken, facts.first_broken),
                   "one JSON object a line, {\"messages\": [...]}; docs: README, \"Your own data\"", ExitCode::kData);
  }
  std::string text = counted(facts.rows, "row", "rows");
  if (facts.broken > 0) text += fmt::format(", {} broken (the first: {})", facts.broken, facts.first_broken);
  text += fmt::format("; of {} looked at {} can be used", facts.looked, facts.looked - facts.unusable);
  if (facts.unusable > 0) text += fmt::format(" (the first that cannot: {})", facts.first_unusable);
  if (facts.media > 0) text += fmt::format("; {}", counted(facts.media, "picture or video", "pictures and videos"));
  if (facts.longest_tokens > 0)
    text += fmt::format("; longest {} tokens ({})", facts.longest_tokens, facts.longest_where);
  text += facts.notices;
  const bool none = facts.unusable == facts.looked;
  if (none || (facts.strict && facts.broken + facts.unusable > 0)) {
    return failure(facts.file, text, none ? "mend what is named: no row that was looked at can be used" : repair,
                   ExitCode::kData);
  }
  if (facts.broken + facts.unusable > 0) return warning(facts.file, text, repair);
  if (facts.max_positions > 0 && facts.longest_tokens > facts.max_positions) {
    return warning(facts.file, fmt::format("{}, but the model was made for {}", text, facts.max_positions),
                   fmt::format("--max_length {}, or a smaller --max_pixels for pictures", facts.max_positions));
  }
  return fine(facts.file, facts.tokens_made ? text : text + " (--model shows how long they are)");
}

}  // namespace lockstep
