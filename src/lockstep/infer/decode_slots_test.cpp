// Continuous batching: what a row says depends on nobody else, every row is answered once, and no pass is wasted.
#include "lockstep/infer/decode_slots.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"
#include "lockstep/infer/test_answers.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

constexpr uint64_t kSeed = 20261121;

Rows random_prompts(RowMaker make_row, size_t count) {
  std::mt19937_64 random(kSeed);
  Rows rows;
  for (size_t i = 0; i < count; ++i) {
    rows.push_back(make_row(random, i % 3 != 0));
    rows.back().labels.clear();
    if (i % 5 > 2) rows.back() = asked_otherwise(rows[i - 2], static_cast<int32_t>(10 + i));
  }
  return rows;
}

void expect_the_same_whatever_the_ranks(const Model& model, RowMaker make_row) {
  const Rows prompts = random_prompts(make_row, 13);
  for (const int64_t slots : {1, 3, 5}) {
    const Said alone = generate(model, prompts, 1, {0}, options_of(slots));
    ASSERT_EQ(alone.rows.size(), 13U);
    EXPECT_TRUE(std::any_of(alone.rows.begin(), alone.rows.end(), [](const auto& row) { return row.stopped; }));
    EXPECT_TRUE(
        std::any_of(alone.rows.begin(), alone.rows.end(), [](const auto& row) { return row.tokens.size() == 12; }));
    for (const int world : {2, 3}) {
      for (const Held& held : kHeld) {
        SCOPED_TRACE(testing::Message() << slots << " slots, " << world << " ranks, " << held);
        expect_same(generate(model, prompts, world, held, options_of(slots)).rows, alone.rows);
      }
    }
  }
}

TEST(Generate, SampledTextDependsOnTheSeedAndTheRowAlone) {
  expect_the_same_whatever_the_ranks(llava_model(), random_row);
}

TEST(Generate, RowsWithThreeAxesOfPositionsToo) {
  expect_the_same_whatever_the_ranks(qwen_vl_model(), random_picture_row);
}

TEST(Generate, RowsThatLookBackAWindowToo) {
  Json config = llava_config(false);
  config["text_config"]["model_type"] = "mistral";
  config["text_config"]["sliding_window"] = 5;
  const HfConfig read(config, "test config");
  expect_the_same_whatever_the_ranks(family_of(read).build(read), random_row);
}

/// A row that ends makes room at once: the passes are those that a schedule by hand gives.
TEST(Generate, AFreeSlotIsFilledInTheNextPassAndNoPassComesAfterTheLastToken) {
  const Model model = llava_model();
  const Rows prompts = random_prompts(random_row, 9);
  const auto options = options_of(2);
  const Said said = generate(model, prompts, 1, {0}, options);
  std::vector<int64_t> free_at(2, 0);
  for (const auto& row : said.rows) {  // each takes a pass for every token, the stop token's among them
    auto slot = std::min_element(free_at.begin(), free_at.end());
    *slot += static_cast<int64_t>(row.tokens.size()) + (row.stopped ? 1 : 0);
  }
  EXPECT_EQ(said.passes, *std::max_element(free_at.begin(), free_at.end()));
}

TEST(Generate, APenaltyLeavesThePromptOutWhereTheModelAnswersFromEmbeddings) {
  const Model model = llava_model();
  std::mt19937_64 random(kSeed);
  Rows prompts;
  for (int i = 0; i < 40; ++i) {
    prompts.push_back(random_row(random, /*with_image=*/false));
    prompts.back().labels.clear();
  }
  const auto first_tokens = [&](double penalty, bool prompt) {
    GenerateOptions options = options_of(4);
    options.max_new_tokens = 1;
    options.stop_tokens = {};
    options.sampling = {.repetition_penalty = penalty};
    options.penalises_prompt = prompt;
    std::vector<int32_t> tokens;
    for (const auto& row : generate(model, prompts, 1, {0}, options).rows) tokens.push_back(row.tokens.at(0));
    return tokens;
  };
  const auto likeliest = first_tokens(1, true);
  EXPECT_NE(first_tokens(100, true), likeliest) << "some prompt holds its likeliest token";
  EXPECT_EQ(first_tokens(100, false), likeliest);
}

TEST(Generate, AnswersPassTheModelsPositionsOnlyWhereThatIsAskedFor) {
  Model model = llava_model();
  const Rows prompts = random_prompts(random_row, 1);
  model.dims.max_positions = static_cast<int64_t>(prompts[0].input_ids.size()) + 2;
  GenerateOptions options = options_of(1);
  options.stop_tokens = {};
  EXPECT_EQ(generate(model, prompts, 1, {0}, options).rows.at(0).tokens.size(), 2U);
  options.passes_positions = true;
  EXPECT_EQ(generate(model, prompts, 1, {0}, options).rows.at(0).tokens.size(), 12U);
}

TEST(Generate, RanksWithoutRowsLendTheirShards) {
  const Model model = llava_model();
  const Rows prompts = random_prompts(random_row, 2);
  const Said alone = generate(model, prompts, 1, {0}, options_of(4));
  const Said shared = generate(model, prompts, 4, {3}, options_of(4));
  expect_same(shared.rows, alone.rows);
  expect_same(generate(model, {}, 3, {3}, options_of(4)).rows, {});
  const auto longest = std::max_element(shared.rows.begin(), shared.rows.end(), [](const auto& a, const auto& b) {
    return a.tokens.size() + (a.stopped ? 1 : 0) < b.tokens.size() + (b.stopped ? 1 : 0);
  });
  EXPECT_EQ(shared.passes, static_cast<int64_t>(longest->tokens.size()) + (longest->stopped ? 1 : 0));
}

/// Blocks that were run for three questions, of which the first and the last are about one picture, a token each.
int64_t blocks_run(const Model& model, const Rows& prompts, int64_t slots) {
  int64_t count = 0;
  run_ranks(1, [&](Rank& rank) {
    Job job(model, inference_job(1, {0}), rank.data());
    job.executor().watch({.synchronize = [&] { ++count; }});
    Generator generator(model, job.executor(), rank.control(), false);
    GenerateOptions options = options_of(slots);
    options.max_new_tokens = 1;
    options.reuse = PromptReuse::kNone;
    const auto source = dealt_prompts(static_cast<int64_t>(prompts.size()), rank.control(), [&](int64_t row) {
      return std::optional<Features>(prompts[static_cast<size_t>(row)]);
    });
    EXPECT_EQ(generator.run_all(source, options).size(), prompts.size());
  });
  return count;
}

void expect_one_look_at_a_picture(const Model& model, RowMaker make_row) {
  std::mt19937_64 random(kSeed);
  Rows rows{make_row(random, true), make_row(random, true)};
  rows.push_back(asked_otherwise(rows[0], 17));
  Rows others = rows;
  others[2].media[0].values[3] += 1e-6F;
  // All that do not run for text but the one that lays features among the tokens.
  const auto of_media =
      std::ranges::count_if(model.blocks, [](const auto& block) { return !block->always_runs(); }) - 1;
  ASSERT_GT(of_media, 2);
  for (const int64_t slots : {1, 3}) {
    EXPECT_EQ(blocks_run(model, others, slots) - blocks_run(model, rows, slots), of_media) << slots << " slots";
  }
}

TEST(Generate, LooksAtAPictureOnceForSeveralQuestions) {
  expect_one_look_at_a_picture(llava_model(), random_row);
  expect_one_look_at_a_picture(qwen_vl_model(), random_picture_row);
}

TEST(Generate, MediaThatAreTooLargeToKeepHoldRowsBackForOnePassAlone) {
  const Model model = llava_model();
  std::mt19937_64 random(kSeed);
  const Features row = random_row(random, /*with_image=*/true);
  run_ranks(1, [&](Rank& rank) {
    Job job(model, inference_job(1, {0}), rank.data());
    MediaMemory nothing(0);
    GenerateOptions options = options_of(4);
    options.reuse = PromptReuse::kNone;
    PromptCache read(model.dims.layers, 4);
    DecodeSlots slots(model.dims, options, read, &nothing);
    for (int32_t i = 0; i < 4; ++i) slots.admit({i, asked_otherwise(row, 10 + i)});
    const auto prompts = [&] {
      auto parts = slots.parts();
      job.executor().forward(parts, modalities_of(parts));
      slots.take(parts);
      return std::ranges::count_if(parts, [](const SubBatch& part) {
        return part.context.slot >= 0 && part.context.logits == LogitsWanted::kLast;
      });
    };
    EXPECT_EQ(prompts(), 1);
    EXPECT_EQ(prompts(), 3);
  });
}

TEST(Generate, WhatAPromptThrowsEndsTheRunOnAllRanks) {
  const Model model = llava_model();
  const Rows prompts = random_prompts(random_row, 8);
  for (const Held& held : kHeld) {
    std::atomic<int> thrown{0};
    run_ranks(3, [&](Rank& rank) {
      Job job(model, inference_job(3, held), rank.data());
      Generator generator(model, job.executor(), rank.control(), job.plan().gathers());
      const auto source = dealt_prompts(8, rank.control(), [&](int64_t row) -> std::optional<Features> {
        if (row == 7) throw data_error("rows.jsonl:8: no such image");
        return prompts[static_cast<size_t>(row)];
      });
      try {
        generator.run_all(source, options_of(1));
      } catch (const Error& error) {
        if (error.message().find("rows.jsonl:8") != std::string::npos) ++thrown;
      }
    });
    EXPECT_EQ(thrown, 3) << held;
  }
}

}  // namespace
}  // namespace lockstep
