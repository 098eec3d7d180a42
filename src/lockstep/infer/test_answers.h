// Tests only: rows that ranks answer by continuous batching.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"
#include "lockstep/infer/generator.h"
#include "lockstep/infer/test_rows.h"

namespace lockstep::test {

/// Another question about the same media.
inline Features asked_otherwise(Features row, int32_t token) {
  const auto filled = filled_by(row.media, row.input_ids.size());
  row.input_ids[static_cast<size_t>(std::ranges::find(filled, -1) - filled.begin())] = token;
  return row;
}

inline GenerateOptions options_of(int64_t slots) {
  GenerateOptions options{.max_new_tokens = 12, .batch_size = slots, .stop_tokens = {3, 7}};
  options.sampling.temperature = 1.0;
  options.collate = Job::collate_options();
  return options;
}

/// The answers by row, and how many passes were run on this rank.
struct Said {
  std::vector<Generated> rows;
  int64_t passes = 0;
};

inline Said generate(const Model& model, const Rows& prompts, int world, const Held& held,
                     const GenerateOptions& options) {
  Said said;
  run_ranks(world, [&](Rank& rank) {
    Job job(model, inference_job(world, held), rank.data());
    Generator generator(model, job.executor(), rank.control(), job.plan().gathers());
    const auto source = dealt_prompts(static_cast<int64_t>(prompts.size()), rank.control(), [&](int64_t row) {
      return std::optional<Features>(prompts[static_cast<size_t>(row)]);
    });
    auto rows = generator.run_all(source, options);
    if (rank.id() == 0) said = {std::move(rows), generator.passes()};
  });
  return said;
}

inline void expect_same(const std::vector<Generated>& got, const std::vector<Generated>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].row, wanted[i].row);
    EXPECT_EQ(got[i].tokens, wanted[i].tokens) << "row " << i;
    EXPECT_EQ(got[i].stopped, wanted[i].stopped) << "row " << i;
  }
}

}  // namespace lockstep::test
