#include "lockstep/cli/rehearsed_rows.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/zoo/typical_row.h"

namespace lockstep {
namespace {

constexpr int64_t kLooked = 64;
constexpr int64_t kTypicalTokens = 2048;

/// How much a row asks for: tokens, and what a tower reads.
int64_t weight_of(const Features& row) {
  constexpr int64_t kValuesAToken = 64;
  auto weight = static_cast<int64_t>(row.input_ids.size());
  for (const auto& block : row.media) weight += numel_of(block.shape) / kValuesAToken;
  return weight;
}

Features without_values(Features row) {
  for (auto& block : row.media) block.values = {};
  row.sample = {};
  return row;
}

}  // namespace

std::vector<Features> longest_rows(const Dataset& rows, const std::function<Features(const Sample&)>& features_of,
                                   size_t count) {
  const auto longer = [](const Features& a, const Features& b) { return weight_of(a) > weight_of(b); };
  std::vector<Features> longest;
  const int64_t step = std::max<int64_t>(1, (rows.size() + kLooked - 1) / kLooked);
  for (int64_t row = 0; row < rows.size(); row += step) {
    try {
      Features features = features_of(rows.sample(row));
      longest.insert(std::upper_bound(longest.begin(), longest.end(), features, longer), std::move(features));
      if (longest.size() > count) longest.pop_back();
    } catch (const UserError&) {  // the run itself will name it
    }
  }
  return longest;
}

RehearsedRows RehearsedRows::of(const Dataset& rows, const Processor& processor, const ProcessOptions& options,
                                int world) {
  RehearsedRows made;
  std::optional<UserError> first;
  made.rows_ = longest_rows(
      rows,
      [&](const Sample& sample) {
        try {
          return without_values(processor.train_features(sample, options));
        } catch (const UserError& error) {
          if (!first) first = error;
          throw;
        }
      },
      kLooked);
  if (made.rows_.empty() && first) throw UserError(*first);
  made.most_ = (rows.size() + world - 1) / world;
  made.source_ = rows.size() <= kLooked ? fmt::format("the longest of the data set's {} rows", rows.size())
                                        : fmt::format("the longest of {} rows spread over the data set", kLooked);
  return made;
}

RehearsedRows RehearsedRows::typical(const ModelFolder& folder, int64_t tokens) {
  const int64_t positions = folder.model.dims.max_positions;
  if (tokens == 0) tokens = positions > 0 ? std::min(kTypicalTokens, positions) : kTypicalTokens;
  const bool pictures = folder.sees() && folder.family.typical_row;
  RehearsedRows made;
  made.rows_ = {pictures ? folder.family.typical_row(folder.config, tokens) : typical_text_row(tokens)};
  made.source_ = fmt::format("typical rows{}: give --dataset for those of your data",
                             made.rows_.front().media.empty() ? "" : " with a picture each");
  return made;
}

RowsOfWindow RehearsedRows::window(int64_t batch, int64_t micro_batches) const {
  if (most_ > 0) batch = std::min(batch, most_);
  std::vector<Features> rows;
  for (int64_t i = 0; i < batch; ++i) rows.push_back(rows_[static_cast<size_t>(i) % rows_.size()]);
  return RowsOfWindow(static_cast<size_t>(micro_batches), rows);
}

}  // namespace lockstep
