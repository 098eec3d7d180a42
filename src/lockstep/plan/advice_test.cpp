// Advice over a model of memory that is simple enough to do by hand, in bytes.
#include "lockstep/plan/advice.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/plan/adapters.h"
#include "lockstep/plan/quantisation.h"

namespace lockstep {
namespace {

constexpr int64_t kWeights = 800, kOptimizer = 2400, kKept = 400, kRecomputed = 50;

/// Weights whole below zero3, optimizer whole in zero0, activations by the row; a map shares all of it out.
int64_t bytes_of(const JobShape& job) {
  const PlanOptions& o = job.options;
  const int64_t parts = o.zero.shards_optimizer() ? o.world : 1;
  int64_t bytes = o.placement.offload_params ? 10 : o.zero.shards_params() ? kWeights / o.world : kWeights;
  const int64_t learns = o.adapters ? kOptimizer / 100 : o.frozen.empty() ? kOptimizer : kOptimizer / 2;
  if (o.quantised) bytes -= kWeights / 2;
  if (!o.placement.offload_optimizer) bytes += learns / parts;
  bytes += job.batch * (o.recompute ? kRecomputed : kKept);
  return bytes / job.devices;
}

MemoryForecast forecast_of(int64_t bytes, int64_t capacity) {
  DeviceForecast device{.name = "cuda:0", .capacity = capacity, .figures = {}};
  device.figures.phases[0].bytes = bytes;
  return {.devices = {device}, .host = {}, .context_bytes = 0, .batch = ""};
}

struct Asked {
  Advice advice;
  std::vector<JobShape> tried;
};

Asked ask(const AdviceQuestion& question, int64_t capacity) {
  Asked asked;
  asked.advice = advise(question, forecast_of(bytes_of(question.job), capacity), [&](const JobShape& job) {
    asked.tried.push_back(job);
    return forecast_of(bytes_of(job), capacity);
  });
  return asked;
}

AdviceQuestion question_of(int stage, int64_t batch, bool recompute) {
  return {.job = {.options = {.world = 4, .zero = {stage}, .recompute = recompute, .recompute_vision = recompute},
                  .batch = batch,
                  .accumulation = 2},
          .components = {Component::kLlm}};
}

using Flags = std::vector<std::string>;

TEST(Advice, SaysNothingWhereNoCapacityIsKnown) {
  const Advice advice = ask(question_of(3, 1, true), 0).advice;
  EXPECT_FALSE(advice.known);
  EXPECT_EQ(advice.tries, 0);
  EXPECT_EQ(advice.print(), "");
  EXPECT_TRUE(advice.json().is_null());
}

TEST(Advice, SaysThatAdaptersWouldFitAndCodesWhereThatIsNotEnough) {
  const auto adapters = std::make_shared<const AdapterLayout>();
  AdviceQuestion question = question_of(3, 1, true);
  question.job.options.world = 1;
  question.host_apart = false;
  question.lighter = {
      {{"--tuner_type lora"}, "adapters", 1.0, adapters, nullptr},
      {{"--tuner_type lora", "--quant_bits 4"}, "codes", 1.1, adapters, std::make_shared<const Quantisation>()}};
  // 800 + 2400 + 50 as it is, 800 + 24 + 50 with adapters, 400 less over codes.
  const Advice advice = ask(question, 1000).advice;
  ASSERT_EQ(advice.changes.size(), 1u);
  EXPECT_EQ(advice.changes[0].flags, (Flags{"--tuner_type lora"}));
  EXPECT_FALSE(advice.changes[0].same_training);
  EXPECT_EQ(advice.changes[0].peak, 874);
  EXPECT_EQ(ask(question, 500).advice.changes.at(0).flags, (Flags{"--tuner_type lora", "--quant_bits 4"}));
  EXPECT_TRUE(ask(question, 300).advice.changes.empty());
}

TEST(Advice, NamesTheCheapestChangeAlone) {
  // zero0 with two rows: 800 + 2400 + 100 = 3300; zero2 is free: 800 + 600 + 100 = 1500.
  const Advice advice = ask(question_of(0, 2, true), 2000).advice;
  ASSERT_FALSE(advice.changes.empty());
  EXPECT_EQ(advice.peak, 3300);
  EXPECT_EQ(advice.changes[0].flags, (Flags{"--deepspeed zero2"}));
  EXPECT_EQ(advice.changes[0].peak, 1500);
  EXPECT_DOUBLE_EQ(advice.changes[0].time, 1.0);
  EXPECT_EQ(advice.changes[0].job.options.zero.stage, 2);
}

TEST(Advice, NamesThreeWaysInTheOrderOfTheirCost) {
  // zero2, 4 rows kept: 800 + 600 + 1600 = 3000 of 2300.
  const Advice advice = ask(question_of(2, 4, false), 2300).advice;
  ASSERT_EQ(advice.changes.size(), 3u);
  EXPECT_EQ(advice.changes[0].flags,
            (Flags{"--per_device_train_batch_size 2", "--gradient_accumulation_steps 4"}));  // 2200
  EXPECT_EQ(advice.changes[0].peak, 2200);
  EXPECT_EQ(advice.changes[1].flags, (Flags{"--gradient_checkpointing true"}));  // 1600
  EXPECT_EQ(advice.changes[1].peak, 1600);
  EXPECT_EQ(advice.changes[2].flags, (Flags{"--deepspeed zero3", "--offload optimizer"}));  // 200 + 1600
  EXPECT_EQ(advice.changes[2].peak, 1800);
  EXPECT_LE(advice.changes[0].time, advice.changes[1].time);
  EXPECT_LE(advice.changes[1].time, advice.changes[2].time);
}

TEST(Advice, PutsChangesTogetherWhereOneDoesNotSuffice) {
  // zero0, 2 rows kept: 800 + 2400 + 800; 500 needs weights, optimizer and rows to be less at once.
  const Asked asked = ask(question_of(0, 2, false), 500);
  ASSERT_FALSE(asked.advice.changes.empty());
  for (const auto& change : asked.advice.changes) {
    EXPECT_LE(bytes_of(change.job), 500);
    EXPECT_EQ(bytes_of(change.job), change.peak);
    EXPECT_EQ(change.job.batch * change.job.accumulation, 4) << "as many rows a step";
  }
  EXPECT_LE(asked.advice.tries, 24);
  EXPECT_EQ(static_cast<size_t>(asked.advice.tries), asked.tried.size());
}

TEST(Advice, OffersNothingOfTheHostWhereTheDeviceIsTheHost) {
  AdviceQuestion question = question_of(2, 4, false);
  question.host_apart = false;
  for (const auto& change : ask(question, 2300).advice.changes) {
    for (const auto& flag : change.flags) EXPECT_FALSE(flag.starts_with("--offload")) << flag;
  }
}

TEST(Advice, ChangesTheTrainingLast) {
  AdviceQuestion question = question_of(3, 1, true);
  question.components = {Component::kLlm, Component::kVision};
  // 200 + 600 + 50 = 850 of 700: offloading keeps the training, freezing the tower (200 + 300 + 50) is faster and
  // changes it.
  const Advice advice = ask(question, 700).advice;
  ASSERT_EQ(advice.changes.size(), 3u);
  EXPECT_EQ(advice.changes[0].flags, (Flags{"--offload optimizer"}));
  EXPECT_EQ(advice.changes[1].flags, (Flags{"--offload params"}));
  EXPECT_EQ(advice.changes[2].flags, (Flags{"--train llm"}));
  EXPECT_FALSE(advice.changes[2].same_training);
}

TEST(Advice, SpreadsBlocksOverTheDevicesOfAMachine) {
  AdviceQuestion question = question_of(3, 1, true);
  question.local_ranks = 4;
  question.host_apart = true;
  question.job.options.placement = {.offload_params = true, .offload_optimizer = true};
  // 10 + 50 = 60 of 20; one rank over four devices: (10 + 50) / 4.
  const Advice advice = ask(question, 20).advice;
  ASSERT_EQ(advice.changes.size(), 1u);
  EXPECT_EQ(advice.changes[0].flags, (Flags{"--device_map auto", "--nproc 1", "--gradient_accumulation_steps 8"}));
  EXPECT_EQ(advice.changes[0].job.options.world, 1);
  EXPECT_EQ(advice.changes[0].job.devices, 4);
}

TEST(Advice, KeepsWhatIsOffloadedWhenTheStageChanges) {
  AdviceQuestion question = question_of(2, 1, true);  // --deepspeed zero2_offload
  question.job.options.placement.offload_optimizer = true;
  const Advice advice = ask(question, 300).advice;  // 800 + 50
  ASSERT_FALSE(advice.changes.empty());
  EXPECT_EQ(advice.changes[0].flags, (Flags{"--deepspeed zero3", "--offload optimizer"}));
}

TEST(Advice, SaysWhatItNeedsWhereNothingHelps) {
  const Advice advice = ask(question_of(0, 2, false), 30).advice;
  EXPECT_TRUE(advice.changes.empty());
  EXPECT_EQ(advice.everything, 60);  // offloaded, one row recomputed
  EXPECT_EQ(advice.tries, 1);
  EXPECT_NE(advice.print().find("60 B"), std::string::npos) << advice.print();
}

TEST(Advice, LooksAroundAJobThatCannotBe) {
  const AdviceQuestion question = question_of(2, 4, false);
  const Advice advice = advise(question, forecast_of(3000, 2300), [&](const JobShape& job) -> MemoryForecast {
    if (job.options.placement.offload_params) throw UserError(ExitCode::kMemory, "no room in the host");
    return forecast_of(bytes_of(job), 2300);
  });
  ASSERT_EQ(advice.changes.size(), 3u);
  EXPECT_EQ(advice.changes[0].peak, 2200);
}

TEST(Advice, NamesTheLighterStageAndTheLargestBatchWhereItFits) {
  // zero3: 200 + 600 + 50; zero2: 800 + 600 + 50. 24 rows: 200 + 600 + 1200 = 2000; 32 do not fit.
  const Advice advice = ask(question_of(3, 1, true), 2100).advice;
  EXPECT_TRUE(advice.fits);
  ASSERT_TRUE(advice.lightest);
  EXPECT_EQ(advice.lightest->flags, (Flags{"--deepspeed zero2"}));
  EXPECT_EQ(advice.lightest->peak, 1450);
  EXPECT_EQ(advice.largest_batch, 24);
  EXPECT_FALSE(ask(question_of(3, 1, true), 1000).advice.lightest);
  EXPECT_FALSE(ask(question_of(2, 1, true), 3000).advice.lightest);
}

TEST(Advice, FindsTheLargestBatchInFewTriesWhateverRowsNeed) {
  AdviceQuestion question = question_of(2, 1, true);
  for (const int64_t capacity : {3300, 3349, 3350, 3999, 6449, 10000, 50000}) {
    // 800 + 600 + 50 a row: the largest power of two, or that and its half.
    int64_t wanted = 1;
    while (1400 + 2 * wanted * 50 <= capacity) wanted *= 2;
    if (wanted > 1 && 1400 + (wanted + wanted / 2) * 50 <= capacity) wanted += wanted / 2;
    const Advice advice = ask(question, capacity).advice;
    EXPECT_EQ(advice.largest_batch, wanted) << capacity;
    EXPECT_LE(advice.tries, 5) << capacity;
  }
}

TEST(Advice, OffersNoMoreRowsThanThereAre) {
  AdviceQuestion question = question_of(3, 1, true);
  question.most_rows = 6;
  EXPECT_EQ(ask(question, 100000).advice.largest_batch, 6);
}

}  // namespace
}  // namespace lockstep
