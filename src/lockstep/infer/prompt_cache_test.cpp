// Prompts that begin alike: each is read once, and nobody hears of it.
#include "lockstep/infer/prompt_cache.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <span>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/exec/prompt_pieces.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/infer/test_answers.h"
#include "lockstep/zoo/mrope.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

constexpr uint64_t kSeed = 20261127;

/// Rows of text that are alike up to their last tokens.
Rows long_prompts(const std::vector<size_t>& lengths) {
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

TEST(PromptReuse, RowsThatReadALongTextTogetherSayTheSameOnAnyRanks) {
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
    const int64_t seen = media_end(row), tokens = static_cast<int64_t>(row.input_ids.size());
    const auto asks = [&](int32_t last) {
      Features other = row;
      other.input_ids.back() = last;
      return other;
    };
    const std::vector<Rows> turns{{row, asks(11)}, {asks(12), asks(13)}, {asks(14)}};
    const Read whole = read_in_turns(model, turns, PromptReuse::kNone);
    EXPECT_EQ(whole.tokens, (std::vector<int64_t>{2 * tokens, 2 * tokens, tokens}));
    const Read pieces = read_in_turns(model, turns, PromptReuse::kPieces);
    const int64_t question = tokens - seen;
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

/// Keys of an answer were made one by one: bits of the same tokens in a piece differ.
TEST(PromptReuse, WhatWasSaidIsNoPieceOfAnother) {
  const Features whole = long_prompts({1100})[0];
  for (const size_t read : {300, 510, 511}) {
    Features first = whole;
    first.input_ids.resize(read);
    PromptCache cache(/*layers=*/1, /*slots=*/1);
    const auto text = [](const Features& row) { return prompt_text(row, std::nullopt); };
    const int64_t slot = cache.open(text(first), 1200, PromptReuse::kPieces);
    cache.read(slot, cache.most_alike(slot));
    const std::span<const int32_t> behind(whole.input_ids.data() + read, 500);
    cache.close(slot, behind);
    EXPECT_EQ(cache.open(text(whole), 1200, PromptReuse::kPieces), slot);
    EXPECT_EQ(cache.most_alike(slot).tokens, 0) << read;
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

/// Rows that begin as others do, up to anywhere, each with a last token of its own; half of them about one of two pictures.
Rows branching_prompts(RowMaker make_row, std::mt19937_64& random) {
  const auto below = [&](uint64_t count) { return random() % count; };
  const auto text = [&](size_t count) {
    std::vector<int32_t> tokens(count);
    for (auto& token : tokens) token = static_cast<int32_t>(below(40));
    return tokens;
  };
  const Rows stems{make_row(random, true), make_row(random, true), {.input_ids = text(1 + below(1200))}};
  Rows rows;
  for (int32_t i = 0; i < 9; ++i) {
    Features row = below(2) == 0 ? stems[below(2)] : stems[2];
    row.labels.clear();
    if (row.media.empty()) row.input_ids.resize(1 + below(row.input_ids.size()));
    const auto more = text(below(3) == 0 ? 600 : below(9));
    row.input_ids.insert(row.input_ids.end(), more.begin(), more.end());
    row.input_ids.push_back(i);
    if (!row.positions.empty()) set_mrope_positions(row, {.merge = 2, .tokens_per_second = 2});
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The logits behind a prompt, by its last token.
using Heard = std::map<int64_t, Tensor>;

/// Answers rows, so many at most admitted before each pass.
void answer(Job& job, DecodeSlots& slots, const Rows& rows, const std::function<uint64_t()>& at_once, Heard& heard) {
  size_t next = 0;
  while (next < rows.size() || !slots.empty()) {
    for (uint64_t count = at_once(); count > 0 && next < rows.size() && !slots.full(); --count, ++next) {
      slots.admit({static_cast<int64_t>(next), rows[next]});
    }
    auto parts = slots.parts();
    if (parts.empty()) continue;
    std::map<size_t, int64_t> last;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (parts[p].context.slot < 0 || parts[p].context.logits == LogitsWanted::kNone) continue;
      const Tensor& ids = parts[p].flow["input_ids"];
      last[p] = ids.select(1, ids.size(1) - 1).item<int64_t>();
    }
    job.executor().forward(parts, modalities_of(parts));
    for (const auto& [p, token] : last) heard[token] = parts[p].flow["logits"].clone();
    slots.take(parts);
  }
}

void expect_the_same_bits_beside_others(const Model& model, RowMaker make_row, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const Rows rows = branching_prompts(make_row, random);
  const auto slots = static_cast<int64_t>(1 + random() % 5);
  run_ranks(1, [&](Rank& rank) {
    JobOptions computed = inference_job(1, {0});
    if (seed % 2 == 0) computed.plan.compute = Dtype::kBF16;
    Job job(model, computed, rank.data());
    GenerateOptions options = options_of(slots);
    options.max_new_tokens = static_cast<int64_t>(1 + random() % 4);
    PromptCache cache(model.dims.layers, slots);
    MediaMemory media;
    Heard together, alone;
    for (int turn = 0; turn < 2; ++turn) {
      DecodeSlots beside(model.dims, options, cache, &media);
      answer(
          job, beside, rows, [&] { return random() % 3; }, together);
    }
    for (const Features& row : rows) {
      PromptCache fresh(model.dims.layers, slots);
      DecodeSlots by_itself(model.dims, options, fresh);
      answer(
          job, by_itself, {row}, [] { return 1; }, alone);
    }
    ASSERT_EQ(together.size(), rows.size());
    for (const auto& [token, logits] : alone) EXPECT_TRUE(together.at(token).equal(logits)) << "row " << token;
  });
}

TEST(PromptReuse, WhatComesBehindAPromptHasTheSameBitsWhoeverStandsBesideIt) {
  for (uint64_t seed = kSeed; seed < kSeed + 6; ++seed) {
    expect_the_same_bits_beside_others(llava_model(), random_row, seed);
    expect_the_same_bits_beside_others(qwen_vl_model(), random_picture_row, seed);
  }
}

}  // namespace
}  // namespace lockstep
