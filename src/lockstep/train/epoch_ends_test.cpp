// What comes at the end of each epoch comes there, also where a run goes on with other batches and epochs have other steps.
#include <limits>
#include <optional>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/testing/ranks.h"
#include "lockstep/train/test_random_run.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

using Steps = std::vector<int64_t>;

/// Which steps of a run were saved, evaluated and told.
struct Followed final : EventSink {
  Steps saved, evaluated, told;
  void on(const Event& event) override {
    if (const auto* done = std::get_if<StepDone>(&event)) told.push_back(done->step);
  }
};

test::Case run_of(int64_t rows) {
  std::mt19937_64 random(1);
  test::Case c{.seed = 1};
  c.towers = test::random_towers(random, /*tied=*/false);
  for (int64_t i = 0; i < rows; ++i) c.rows.push_back({test::random_mixed_row(random, c.towers, {})});
  return c;
}

/// Starts over one job, one after another: all but the last end behind so many steps of theirs.
class EpochEnds {
 public:
  EpochEnds(Rank& rank, const test::Case& c, const Dataset& data)
      : rank_(rank), case_(c), data_(data), model_(c.model()), job_(model_, {.seed = 1}, rank.data()) {}

  /// Of its evaluations, one after another: then saved where they are the best.
  std::vector<double> losses;
  int64_t given_up = -1;  // the step whose evaluation is, once
  TrainOutcome outcome;
  double eval_delay = 0;

  Followed go_on(double epochs, int64_t batch, int64_t accumulation, int64_t steps = -1) {
    const test::CaseProcessor processor(case_);
    Loader loader(data_, processor, {.batch_size = batch, .seed = 1, .num_workers = 0});
    Followed found;
    EventBus events;
    events.add(found);
    int64_t asked = 0;  // once a micro-batch
    const TrainerHooks hooks{.stop_wanted = [&] { return steps >= 0 && asked++ == steps * accumulation; },
                             .save =
                                 [&](const TrainerState& state) {
                                   found.saved.push_back(state.global_step);
                                   return CheckpointSaved{.step = state.global_step};
                                 },
                             .evaluate = [&](int64_t step) -> std::optional<EvalDone> {
                               found.evaluated.push_back(step);
                               if (step == given_up) {
                                 given_up = -1;
                                 return std::nullopt;
                               }
                               return EvalDone{.step = step, .loss = losses.empty() ? 1 : losses.at(asked_evals_++)};
                             }};
    const TrainOptions options{.gradient_accumulation_steps = accumulation,
                               .num_train_epochs = epochs,
                               .log_epochs = true,
                               .save_epochs = losses.empty(),
                               .eval_epochs = true,
                               .eval_delay = eval_delay,
                               .logging_first_step = false,
                               .save_at_end = losses.empty(),
                               .save_best = !losses.empty(),
                               .per_device_train_batch_size = batch};
    Trainer trainer(
        {job_.plan(), job_.store(), job_.executor(), job_.adamw(), rank_.data(), rank_.control(), loader, events},
        options, hooks, test::Job::collate_options(), data_.size(), {});
    if (state_.global_step > 0) trainer.restore(state_);
    outcome = trainer.run();
    state_ = trainer_state_from_json(to_json(trainer.state()), "as it is kept");
    return found;
  }

 private:
  Rank& rank_;
  const test::Case& case_;
  const Dataset& data_;
  Model model_;
  test::Job job_;
  TrainerState state_;
  size_t asked_evals_ = 0;
};

TEST(EpochEnds, AreWhereTheRowsEndWhateverTheBatchesWere) {
  const test::Case c = run_of(11);
  const test::File file(c);
  const Dataset data = file.read();
  run_ranks(1, [&](Rank& rank) {
    const Followed whole = EpochEnds(rank, c, data).go_on(2.5, 1, 3);
    for (const Steps& steps : {whole.saved, whole.evaluated, whole.told}) EXPECT_EQ(steps, (Steps{4, 8, 10}));
    EpochEnds resumed(rank, c, data);
    EXPECT_EQ(resumed.go_on(3, 1, 3, /*steps=*/2).saved, Steps{2}) << "as it was stopped";
    const Followed rest = resumed.go_on(3, 2, 1, /*steps=*/3);
    EXPECT_EQ(rest.saved, Steps{5});
    const Followed last = resumed.go_on(3, 3, 1);
    for (const Steps& steps : {last.saved, last.evaluated, last.told}) EXPECT_EQ(steps, (Steps{9, 13}));
  });
}

TEST(EpochEnds, AreEvaluatedFromTheDelayOnAndAtTheEndInAnyCase) {
  const test::Case c = run_of(4);
  const test::File file(c);
  const Dataset data = file.read();
  run_ranks(1, [&](Rank& rank) {
    for (const auto& [delay, expected] :
         std::vector<std::pair<double, Steps>>{{2, {4, 6, 8}}, {2.5, {6, 8}}, {100, {8}}}) {
      EpochEnds run(rank, c, data);
      run.eval_delay = delay;
      EXPECT_EQ(run.go_on(4, 2, 1).evaluated, expected) << delay;
    }
  });
}

TEST(EpochEnds, AreSavedWhereTheirEvaluationsAreTheBestAndOnlyThere) {
  const test::Case c = run_of(4);
  const test::File file(c);
  const Dataset data = file.read();
  run_ranks(1, [&](Rank& rank) {
    EpochEnds run(rank, c, data);
    run.losses = {3, 2, 2, 4, 1, 5};
    const Followed found = run.go_on(6, 2, 1);
    EXPECT_EQ(found.evaluated, (Steps{2, 4, 6, 8, 10, 12}));
    EXPECT_EQ(found.saved, (Steps{2, 4, 10}));
    EpochEnds blind(rank, c, data);
    blind.losses.assign(6, std::numeric_limits<double>::quiet_NaN());
    EXPECT_EQ(blind.go_on(6, 2, 1).saved, Steps{12}) << "a run that was never compared is not thrown away";
  });
}

/// A batch system that ends a job does not wait for an evaluation.
TEST(EpochEnds, AnEvaluationThatAStopCutsShortIsSavedAsDueAndMadeWhenTheRunGoesOn) {
  const test::Case c = run_of(4);
  const test::File file(c);
  const Dataset data = file.read();
  run_ranks(1, [&](Rank& rank) {
    EpochEnds run(rank, c, data);
    run.losses = {3, 2, 4};
    run.given_up = 4;
    const Followed first = run.go_on(3, 2, 1);
    EXPECT_TRUE(run.outcome.interrupted);
    EXPECT_EQ(first.evaluated, (Steps{2, 4}));
    EXPECT_EQ(first.saved, (Steps{2, 4})) << "what was trained is not lost";
    const Followed rest = run.go_on(3, 2, 1);
    EXPECT_FALSE(run.outcome.interrupted);
    EXPECT_EQ(rest.evaluated, (Steps{4, 6}));
    EXPECT_EQ(rest.saved, Steps{4}) << "now it is known to be the best";
  });
}

}  // namespace
}  // namespace lockstep
