// A talker behind the decoder of text: rows that are said on some ranks, on none, beside pictures, packed or alone.
#include <gtest/gtest.h>

#include "lockstep/exec/test_job.h"
#include "lockstep/exec/test_towers.h"
#include "lockstep/zoo/text_blocks.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

TextConfig text_config() {
  return {.vocab = kVocab,
          .hidden = 20,
          .mlp = 27,
          .layers = 2,
          .heads = 5,
          .kv_heads = 1,
          .head_dim = 4,
          .max_positions = 64,
          .rope = {.inverse_frequencies = {1.0F, 0.1F}}};
}

Model talking_model() {
  Model model;
  model.family = "talking";
  add_token_embedding(model, {}, text_config());
  add_decoder(model, {}, text_config());
  add_talker(model, "talker", talker_config(), text_config().hidden);
  return model;
}

/// A row of text; every other one is said.
Features spoken_row(std::mt19937_64& random, bool said) {
  Features row = random_row(random, false);
  const auto tokens = row.input_ids.size();
  if (!said || tokens < 2) return row;
  say(random, row, 1 + random() % (tokens - 1));
  return row;
}

std::vector<MicroBatch> random_window(std::mt19937_64& random, int world) {
  std::vector<MicroBatch> window;
  for (int micro = 0; micro < 2; ++micro) window.push_back(random_micro_batch(random, world, 3, spoken_row));
  return window;
}

Named gradients_of(const Model& model, const JobOptions& options, const std::vector<MicroBatch>& window, int ranks) {
  Named gradients;
  run_ranks(ranks, [&](Rank& rank) {
    Job job(model, options, rank.data());
    std::vector<size_t> mine;
    for (size_t r = 0; r < window.front().size(); ++r) {
      if (ranks == 1 || static_cast<int>(r) == rank.id()) mine.push_back(r);
    }
    job.accumulate(window, mine);
    Named found = job.gradients();
    if (rank.id() == 0) gradients = std::move(found);
  });
  return gradients;
}

TEST(Speech, AnyRanksAndStagesGiveTheGradientsOfOneProcess) {
  const uint64_t seed = 20261123;
  std::mt19937_64 random(seed);
  const Model model = talking_model();
  for (int turn = 0; turn < 24; ++turn) {
    const int world = 2 + turn % 2;
    JobOptions options{.plan = {.zero = {turn % 4}, .compute = Dtype::kF32}};
    options.plan.recompute = turn % 3 == 0;
    if (turn % 5 == 0) options.plan.frozen.insert(Component::kLlm);
    if (turn % 7 == 0) options.plan.frozen.insert(Component::kTalker);
    if (options.plan.frozen.size() == 2) options.plan.frozen.clear();
    const auto window = random_window(random, world);
    JobOptions alone = options;
    options.plan.world = world;
    EXPECT_LE(relative_difference(gradients_of(model, options, window, world), gradients_of(model, alone, window, 1)),
              1e-5)
        << "seed " << seed << ", turn " << turn;
  }
}

TEST(Speech, WhatIsSaidReachesTheThinker) {
  std::mt19937_64 random(3);
  const Model model = talking_model();
  Features said = spoken_row(random, true);
  ASSERT_TRUE(said.speech);
  said.labels.assign(said.labels.size(), -100);  // nothing of the text is learnt
  const Named gradients = gradients_of(model, {}, {{{said}}}, 1);
  EXPECT_GT(gradients.at("talker.codec_head.weight").abs().max().item<double>(), 1e-4);
  EXPECT_GT(gradients.at("model.layers.0.mlp.down_proj.weight").abs().max().item<double>(), 1e-6);
  EXPECT_GT(gradients.at("model.embed_tokens.weight").select(0, 39).abs().max().item<double>(), 1e-6) << "the voice";
  EXPECT_EQ(gradients.at("lm_head.weight").abs().max().item<double>(), 0) << "no text, no loss of it";
}

/// Logits of the talker, and the steps that they stand for, row by row.
std::vector<Tensor> spoken_logits(const Model& model, const std::vector<Features>& rows, RowLayout layout) {
  std::vector<Tensor> out;
  run_ranks(1, [&](Rank& rank) {
    Job job(model, {}, rank.data());
    Batch batch = collate(rows, {.pad_token = kPadToken, .layout = layout});
    const Modalities here = batch.modalities;
    const Flow flow = job.executor().forward(std::move(batch.flow), {.logits = LogitsWanted::kAll}, here, here);
    int64_t begin = 0;
    for (const auto& row : rows) {
      const auto steps = row.speech ? static_cast<int64_t>(row.speech->text.size()) : 0;
      if (steps > 0) out.push_back(flow["speech_logits"].narrow(1, begin, steps).clone());
      begin += steps;
    }
  });
  return out;
}

TEST(Speech, WhatARowSaysDoesNotDependOnItsNeighbours) {
  std::mt19937_64 random(11);
  const Model model = talking_model();
  std::vector<Features> rows;
  for (int i = 0; i < 5; ++i) rows.push_back(spoken_row(random, i != 2));
  for (const auto layout : {RowLayout::kRightPadded, RowLayout::kLeftPadded, RowLayout::kPacked}) {
    const auto together = spoken_logits(model, rows, layout);
    size_t at = 0;
    for (const auto& row : rows) {
      if (!row.speech) continue;
      const Tensor alone = spoken_logits(model, {row}, layout).at(0);
      EXPECT_LE(alone.sub(together.at(at++)).abs().max().item<double>(), 1e-5);
    }
    EXPECT_EQ(at, together.size());
  }
}

TEST(Speech, ATalkerThatNobodyNeedsGathersNothing) {
  std::mt19937_64 random(5);
  const Model model = talking_model();
  std::vector<int64_t> bytes;
  for (const bool said : {false, true}) {
    MicroBatch micro;
    for (int r = 0; r < 2; ++r) micro.push_back({spoken_row(random, said && r == 0)});
    run_ranks(2, [&](Rank& rank) {
      JobOptions options{.plan = {.world = 2, .zero = {3}, .compute = Dtype::kF32}};
      Job job(model, options, rank.data());
      int64_t talker_blocks = 0;
      job.executor().watch({.stands = [&](const Step& step, MemoryPhase) {
        talker_blocks += model.blocks[static_cast<size_t>(step.block)]->component() == Component::kTalker ? 1 : 0;
      }});
      const int64_t before = rank.data().counters().gather_bytes;
      Modalities anywhere{Modality::kText};
      if (said) anywhere |= Modality::kSpeech;
      Batch batch = collate(micro[static_cast<size_t>(rank.id())], Job::collate_options());
      const Modalities here = batch.modalities;
      job.executor().train(std::move(batch.flow), {.training = true}, here, anywhere);
      if (rank.id() != 0) return;
      bytes.push_back(rank.data().counters().gather_bytes - before);
      EXPECT_EQ(talker_blocks > 0, said);
    });
  }
  EXPECT_LT(bytes.at(0), bytes.at(1));
}

}  // namespace
}  // namespace lockstep
