// Continuous batching: what a row says depends on nobody else, every row is answered once, and no pass is wasted.
#include "lockstep/infer/decode_slots.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"
#include "lockstep/infer/generator.h"
#include "lockstep/infer/test_rows.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

constexpr uint64_t kSeed = 20261121;

/// Another question about the same media.
Features asked_otherwise(Features row, int32_t token) {
  const auto filled = filled_by(row.media, row.input_ids.size());
  row.input_ids[static_cast<size_t>(std::ranges::find(filled, -1) - filled.begin())] = token;
  return row;
}

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

GenerateOptions options_of(int64_t slots) {
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

Said generate(const Model& model, const Rows& prompts, int world, const Held& held, const GenerateOptions& options) {
  Said said;
  run_ranks(world, [&](Rank& rank) {
    Job job(model, inference_job(world, held), rank.data());
    Generator generator(model, job.executor(), rank.control(), job.plan().gathers());
    const auto source = dealt_prompts(static_cast<int64_t>(prompts.size()), rank.control(), [&](int64_t row) {
      return std::optional<Features>(prompts[static_cast<size_t>(row)]);
    });
    auto rows = generator.run(source, options);
    if (rank.id() == 0) said = {std::move(rows), generator.passes()};
  });
  return said;
}

void expect_same(const std::vector<Generated>& got, const std::vector<Generated>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].row, wanted[i].row);
    EXPECT_EQ(got[i].tokens, wanted[i].tokens) << "row " << i;
    EXPECT_EQ(got[i].stopped, wanted[i].stopped) << "row " << i;
  }
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
    EXPECT_EQ(generator.run(source, options).size(), prompts.size());
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
      return std::ranges::count_if(parts, [](const SubBatch& part) { return part.context.slot >= 0; });
    };
    EXPECT_EQ(prompts(), 1);
    EXPECT_EQ(prompts(), 3);
  });
}

/// Rows of text that are alike up to their last tokens.
Rows long_prompts(std::vector<size_t> lengths) {
  std::mt19937_64 random(kSeed);
  std::vector<int32_t> text;
  while (text.size() < 1300) text.push_back(static_cast<int32_t>(random() % 40));
  Rows rows;
  for (const size_t length : lengths) {
    Features& row = rows.emplace_back();
    row.input_ids.assign(text.begin(), text.begin() + static_cast<int64_t>(length));
    row.input_ids.back() = static_cast<int32_t>(rows.size());
  }
  return rows;
}

TEST(Generate, RowsThatReadALongTextTogetherToo) {
  const Model model = llava_model();
  const Rows prompts = long_prompts({600, 1100, 20, 1100, 513, 512, 700});
  const Said alone = generate(model, prompts, 1, {0}, options_of(1));
  for (const int64_t slots : {2, 5}) {
    for (const int world : {1, 3}) {
      for (const Held& held : kHeld) {
        if (held.shared && world == 1) continue;
        SCOPED_TRACE(testing::Message() << slots << " slots, " << world << " ranks, " << held);
        const auto once = generate(model, prompts, world, held, options_of(slots)).rows;
        expect_same(once, generate(model, prompts, 1, {0}, options_of(slots)).rows);
        ASSERT_EQ(once.size(), alone.rows.size());
      }
    }
  }
}

/// Tokens that a pass reads of prompts.
int64_t prompt_tokens(std::span<const SubBatch> parts) {
  int64_t tokens = 0;
  for (const SubBatch& part : parts) tokens += part.context.slot < 0 ? 0 : part.flow["input_ids"].size(1);
  return tokens;
}

/// Rows answered one turn after the other in as many slots: the tokens that each turn reads of prompts, and the answers.
struct Read {
  std::vector<int64_t> tokens;
  std::vector<Generated> rows;
};

Read read_in_turns(const Model& model, const std::vector<Rows>& turns, PromptReuse reuse, int64_t slots = 3) {
  Read read;
  run_ranks(1, [&](Rank& rank) {
    Job job(model, inference_job(1, {0}), rank.data());
    GenerateOptions options = options_of(slots);
    options.max_new_tokens = 3;
    options.stop_tokens = {};
    options.sampling.temperature = 0;
    options.reuse = reuse;
    PromptCache cache(model.dims.layers, slots);
    MediaMemory media;
    int64_t row = 0;
    for (const Rows& turn : turns) {
      DecodeSlots rows(model.dims, options, cache, &media);
      for (const Features& features : turn) rows.admit({row++, features});
      read.tokens.push_back(0);
      while (!rows.empty()) {
        auto parts = rows.parts();
        read.tokens.back() += prompt_tokens(parts);
        job.executor().forward(parts, modalities_of(parts));
        for (auto& one : rows.take(parts)) read.rows.push_back(std::move(one));
      }
    }
  });
  std::sort(read.rows.begin(), read.rows.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  return read;
}

TEST(PromptReuse, APictureIsReadOnceForSeveralQuestionsAtATimeAndAfterOneAnother) {
  for (const auto& [model, make_row] :
       {std::pair(llava_model(), &random_row), {qwen_vl_model(), &random_picture_row}}) {
    std::mt19937_64 random(kSeed);
    Features row = make_row(random, /*with_image=*/true);
    row.labels.clear();
    const auto media_end = prompt_text(row, {}).media_end, tokens = static_cast<int64_t>(row.input_ids.size());
    const auto asks = [&](int32_t last) {
      Features other = row;
      other.input_ids.back() = last;
      return other;
    };
    const std::vector<Rows> turns{{row, asks(11)}, {asks(12), asks(13)}, {asks(14)}};
    const Read whole = read_in_turns(model, turns, PromptReuse::kNone);
    EXPECT_EQ(whole.tokens, (std::vector<int64_t>{2 * tokens, 2 * tokens, tokens}));
    const Read pieces = read_in_turns(model, turns, PromptReuse::kPieces);
    const int64_t question = tokens - media_end;
    EXPECT_EQ(pieces.tokens, (std::vector<int64_t>{tokens + question, 2 * question, question}));
    expect_same(pieces.rows, whole.rows);
    const Read any = read_in_turns(model, turns, PromptReuse::kAny);
    EXPECT_EQ(any.tokens, (std::vector<int64_t>{tokens + 1, 2, 1}));
    expect_same(any.rows, whole.rows);
    auto others = turns;  // almost the same picture
    others[1][0].media[0].values[3] += 1e-6F;
    others[2][0].media[0].values[3] -= 1e-6F;
    EXPECT_EQ(read_in_turns(model, others, PromptReuse::kPieces).tokens,
              (std::vector<int64_t>{tokens + question, tokens + question, tokens}));
  }
}

TEST(PromptReuse, TurnsOfAConversationReadWhatIsNew) {
  const Model model = qwen_vl_model();
  std::mt19937_64 random(kSeed);
  for (const bool pictures : {false, true}) {
    Rows said{random_picture_row(random, pictures)};
    said[0].labels.clear();
    std::vector<Rows> turns;
    std::vector<int64_t> fresh{static_cast<int64_t>(said[0].input_ids.size())};
    for (int turn = 0; turn < 4; ++turn) {
      turns.push_back(said);
      const auto answer = read_in_turns(model, turns, PromptReuse::kNone, 1).rows.back().tokens;
      Features& row = said[0];
      row.input_ids.insert(row.input_ids.end(), answer.begin(), answer.end());
      for (const int32_t token : {5, 6 + turn}) row.input_ids.push_back(token);
      if (pictures) set_mrope_positions(row, {.merge = 2, .tokens_per_second = 2});
      fresh.push_back(3);  // the last token of the answer has not been read
    }
    fresh.pop_back();
    const Read any = read_in_turns(model, turns, PromptReuse::kAny, 1);
    EXPECT_EQ(any.tokens, fresh) << pictures;
    expect_same(any.rows, read_in_turns(model, turns, PromptReuse::kNone, 1).rows);
  }
}

TEST(PromptReuse, ALongTextIsReadInPieces) {
  const Model model = llava_model();
  const std::vector<Rows> turns{long_prompts({600, 1100, 1100}), long_prompts({512, 513, 1300})};
  const Read pieces = read_in_turns(model, turns, PromptReuse::kPieces);
  EXPECT_EQ(pieces.tokens, (std::vector<int64_t>{600 + (1100 - 512) + (1100 - 1024), 512 + 1 + (1300 - 1024)}));
  expect_same(pieces.rows, read_in_turns(model, turns, PromptReuse::kNone).rows);
}

TEST(PromptReuse, RowsBeginWithWhatWasReadAlikeAlone) {
  const Features row{.input_ids = {1, 2, 3, 4, 5}};
  const auto open = [](PromptCache& cache, const Features& features, std::optional<size_t> adapter = {}) {
    return cache.most_alike(cache.open(prompt_text(features, adapter), 8, PromptReuse::kAny));
  };
  const auto after_row = [&](const auto& use) {
    PromptCache cache(0, 2);
    const Alike first = open(cache, row);
    EXPECT_EQ(first.tokens, 0);
    cache.read(first.slot, first);
    cache.close(first.slot, std::vector<int32_t>{6, 7, 8});  // 8 has not been read
    use(cache);
  };
  after_row([&](PromptCache& cache) { EXPECT_EQ(open(cache, row).tokens, 4) << "one token is read"; });
  after_row([&](PromptCache& cache) { EXPECT_EQ(open(cache, {.input_ids = {1, 2, 9, 4, 5}}).tokens, 2); });
  after_row([&](PromptCache& cache) {
    EXPECT_EQ(open(cache, {.input_ids = {1, 2, 3, 4, 5, 6, 7, 8, 9}}).tokens, 7) << "with its answer";
  });
  after_row([&](PromptCache& cache) { EXPECT_EQ(open(cache, row, 0).tokens, 0) << "another adapter"; });
  after_row([&](PromptCache& cache) {
    Features elsewhere = row;
    elsewhere.positions = {0, 1, 2, 7, 8};
    EXPECT_EQ(open(cache, elsewhere).tokens, 3);
  });
  after_row([&](PromptCache& cache) {  // who comes to a slot that nobody has used leaves what others may need
    open(cache, {.input_ids = {9, 9}});
    EXPECT_EQ(open(cache, row).tokens, 4);
  });
  after_row([&](PromptCache& cache) {  // of two that are no use the one that ended first goes
    const Alike second = open(cache, {.input_ids = {9, 9}});
    cache.read(second.slot, second);
    cache.close(second.slot, {});
    open(cache, {.input_ids = {8}});
    EXPECT_EQ(open(cache, {.input_ids = {9, 9}}).tokens, 1);
  });
  after_row([&](PromptCache& cache) {  // a pass that failed
    open(cache, row);
    cache.drop_open();
    EXPECT_EQ(open(cache, row).tokens, 0);
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
        generator.run(source, options_of(1));
      } catch (const Error& error) {
        if (error.message().find("rows.jsonl:8") != std::string::npos) ++thrown;
      }
    });
    EXPECT_EQ(thrown, 3) << held;
  }
}

}  // namespace
}  // namespace lockstep
