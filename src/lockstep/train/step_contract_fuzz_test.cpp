// Whole runs over random rows, ranks, transports, stages and stops: loader, window, step contract, trainer. What comes
// out must be what one process makes of the same rows, one at a time, with a loop of its own that knows no ranks, no
// loader and no contract. LOCKSTEP_FUZZ_RUNS (default 60) and LOCKSTEP_FUZZ_SEED choose length and start.
#include <cmath>
#include <iostream>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/guard/agent.h"
#include "lockstep/testing/ranks.h"
#include "lockstep/train/test_random_run.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job and the runs of these tests

/// AdamW divides by the root of what it has seen plus epsilon, which makes whole steps of gradients that are nothing
/// but rounding. With an epsilon as large as ordinary gradients, an error of a gradient moves a weight no further than
/// kRate / kEpsilon times itself, and weights can be compared as tightly as gradients. The rate is small, as rounding grows from
/// step to step: with 1e-2 it was 0.4 to 2 per cent of a gradient where a row's gradient was 80 long and more (2 of 500 runs).
constexpr double kRate = 2e-4, kEpsilon = 1e-2, kClip = 1.0;
/// What a tensor may be off, of its own largest entry. Rows in a batch of padded ones and rows alone are summed in another
/// order: a gradient or its length was off by 1.1e-4 after nine steps, a movement by 4e-5, over hundreds of runs; a row too many
/// or too few, or a wrong count of tokens, changes them by a per cent and more.
constexpr double kGradient = 1e-3, kMovement = 3e-4, kLoss = 3e-5;
/// For tensors whose exact gradient is 0 or nearly so (key biases, which softmax does not see): there is the rounding of
/// the terms that cancel, of the size of the model's largest gradient. Of queries and keys it is more where softmax is nearly
/// flat or nearly certain (2e-5 was seen, beside values that agreed to 1e-4 of themselves).
double floor_of(const std::string& key) {
  const bool scored = key.find(".q_proj.") != std::string::npos || key.find(".k_proj.") != std::string::npos;
  return scored ? 5e-5 : 4e-6;
}

/// What a run came to, as rank 0 tells it, but for `errors`.
struct Outcome {
  std::vector<int64_t> steps;  // of each start
  std::vector<StepDone> log;
  TrainerState state;
  Named before, after, gradients;
  std::vector<std::string> errors;  // of each rank
};

class Log final : public EventSink {
 public:
  explicit Log(std::vector<StepDone>& to) : to_(to) {}
  void on(const Event& event) override {
    if (const auto* done = std::get_if<StepDone>(&event)) to_.push_back(*done);
  }

 private:
  std::vector<StepDone>& to_;
};

TrainOptions options_of(const Case& c, const Start& start) {
  return {.gradient_accumulation_steps = start.accumulation,
          .num_train_epochs = static_cast<double>(c.epochs),
          .learning_rate = kRate,
          .schedule = ScheduleKind::kConstant,
          .max_grad_norm = kClip,
          .loss_chunk = 5,
          .logging_steps = 1,
          .save_steps = 0,
          .eval_steps = 0,
          .per_device_train_batch_size = start.batch,
          .strict = c.strict};
}

/// All starts on one rank, one after another over the same weights; a wish to stop must stop all ranks before the
/// window in which it was said.
void train(Rank& rank, const Case& c, const Dataset& data, Job& job, Outcome& outcome) {
  const CaseProcessor processor(c);
  Log log(outcome.log);
  EventBus events;
  if (rank.id() == 0) events.add(log);
  TrainerState state;
  for (size_t k = 0; k < c.starts.size(); ++k) {
    const Start& start = c.starts[k];
    Loader loader(data, processor,
                  {.batch_size = start.batch,
                   .rank = rank.id(),
                   .world = c.world,
                   .seed = c.seed,
                   .strict = c.strict,
                   .num_workers = c.workers ? 2 : 0});
    const Trainer* current = nullptr;
    int64_t asked = 0, wished_after = -1;
    TrainerHooks hooks;
    hooks.stop_wanted = [&] {
      if (rank.id() != start.stop_rank || ++asked != start.stop_call) return false;
      wished_after = current->state().global_step;
      return true;
    };
    if (c.fits > 0) hooks.fits = [&](const std::vector<Features>& rows) { return c.fit(rows); };
    Trainer trainer({job.plan(), job.store(), job.executor(), job.adamw(), rank.data(), rank.control(), loader, events},
                    options_of(c, start), hooks, Job::collate_options(), data.size(), {});
    current = &trainer;
    if (k > 0) trainer.restore(state);
    const int64_t first = trainer.state().global_step;
    const auto ended = [&] {
      if (rank.id() == 0) outcome.steps.push_back(trainer.state().global_step - first);
      state = trainer.state();
      if (rank.id() == 0) outcome.state = state;
    };
    try {
      const TrainOutcome result = trainer.run();
      ended();
      if (rank.id() == start.stop_rank) {
        EXPECT_EQ(result.interrupted, wished_after >= 0);
        EXPECT_TRUE(wished_after < 0 || state.global_step == wished_after) << "a stop is honoured before the next step";
      }
      if (!result.interrupted) return;
    } catch (...) {
      ended();
      throw;
    }
  }
}

Outcome run(const Case& c, const Dataset& data) {
  Outcome outcome{.errors = std::vector<std::string>(static_cast<size_t>(c.world))};
  Agent agent({.program = "test", .local_ranks = c.world, .world_size = c.world});
  const auto body = [&](Rank& rank) {
    const Model model = c.model();
    Job job(model, c.job, rank.data());
    Named before = job.weights();
    try {
      train(rank, c, data, job, outcome);
    } catch (const SharedError& error) {  // of a strict run: all ranks can go on together
      outcome.errors[static_cast<size_t>(rank.id())] = error.what();
    }
    Named after = job.weights(), gradients = job.gradients();
    if (rank.id() != 0) return;
    outcome.before = std::move(before);
    outcome.after = std::move(after);
    outcome.gradients = std::move(gradients);
  };
  // A strict run may end with last words, upon which an agent ends the job; here its weights are looked at afterwards.
  run_ranks(c.world, body,
            {.transport = c.transport, .patience = std::chrono::seconds(20), .agent = c.strict ? nullptr : &agent});
  const auto end = agent.close();
  EXPECT_FALSE(end) << "the roll call saw a fault: " << end->text;
  return outcome;
}

/// The same rows in one process: one row at a time, in the order of the epochs.
class Alone {
 public:
  Alone(const Case& c, const Dataset& data, Communicator& comm)
      : case_(c), data_(data), model_(c.model()), job_(model_, of(c), comm) {}

  struct Step {
    double loss = 0, norm = 0;
    int64_t targets = 0, tokens = 0, samples = 0, skipped = 0;
  };

  /// The rows of the next step, `most` or what the epoch has left; numbers_ becomes theirs in the data set.
  std::vector<size_t> window(int64_t most) {
    const auto order = epoch_order(data_.size(), case_.seed, cursor_.epoch, true);
    std::vector<size_t> rows;
    numbers_.clear();
    for (; most > 0 && cursor_.rows < data_.size(); --most, ++cursor_.rows) {
      numbers_.push_back(order[static_cast<size_t>(cursor_.rows)]);
      rows.push_back(std::stoul(data_.sample(numbers_.back()).messages.at(0).content));
    }
    if (cursor_.rows == data_.size()) cursor_ = {.epoch = cursor_.epoch + 1, .rows = 0};
    return rows;
  }

  Step step(const std::vector<size_t>& rows) {
    Step done;
    std::vector<Batch> batches;
    std::vector<uint64_t> keys;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t row = rows[i];
      if (!case_.usable(row)) {
        ++done.skipped;
        continue;
      }
      batches.push_back(collate({case_.rows[row].features}, Job::collate_options()));
      keys.push_back(dropout_key(static_cast<uint64_t>(steps_), static_cast<uint64_t>(numbers_[i])));
      done.targets += batches.back().target_tokens;
      done.tokens += batches.back().input_tokens;
      ++done.samples;
    }
    ++steps_;
    if (done.targets == 0) return done;
    ++updates_;
    job_.executor().grads().clear();
    int64_t codes = 0;
    for (const auto& batch : batches) codes += batch.speech_targets;
    Context context{.training = true,
                    .loss_weight = 1.0 / static_cast<double>(done.targets),
                    .speech_loss_weight = 1.0 / static_cast<double>(std::max<int64_t>(1, codes)),
                    .loss_chunk = 512};
    for (size_t i = 0; i < batches.size(); ++i) {
      Batch& batch = batches[i];
      if (job_.plan().drops()) context.dropout_keys = {keys[i]};
      const Modalities here = batch.modalities;
      const TrainOutput out = job_.executor().train(std::move(batch.flow), context, here, here);
      done.loss += out.loss.item<double>() + (out.speech_loss.defined() ? out.speech_loss.item<double>() : 0);
    }
    double squares = 0;
    for (const auto& [key, gradient] : job_.gradients()) squares += gradient.square().sum().item<double>();
    done.norm = std::sqrt(squares);
    job_.adamw().step(kRate, 1.0 / std::min(1.0, kClip / (done.norm + 1e-6)));
    return done;
  }

  LoaderCursor cursor() const { return cursor_; }
  int64_t updates() const { return updates_; }
  Job& job() { return job_; }

 private:
  /// Of a row in a step of a run: the seed, then the step, then the row. A run that goes on after a change of this drops
  /// other numbers.
  static uint64_t dropout_key(uint64_t step, uint64_t row) {
    uint64_t key = 14695981039346656037ULL;
    for (const uint64_t part : {TrainOptions{}.seed, step, row}) {
      key = (key ^ part) * 1099511628211ULL;
      key ^= key >> 32;
    }
    return key;
  }

  static JobOptions of(const Case& c) {
    JobOptions options = c.job;
    options.plan.world = 1;
    options.plan.zero = {0};
    return options;
  }

  const Case& case_;
  const Dataset& data_;
  Model model_;
  Job job_;
  LoaderCursor cursor_;
  std::vector<int64_t> numbers_;  // of the rows of the last window
  int64_t updates_ = 0, steps_ = 0;
};

double largest(const Tensor& tensor) { return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>(); }

/// Each tensor within `relative` of its own largest entry, its floor_of `scale`, and `rounded`.
void expect_near(const Named& found, const Named& wanted, double relative, double scale, double rounded,
                 const char* what) {
  ASSERT_EQ(found.size(), wanted.size()) << what;
  for (const auto& [key, value] : wanted) {
    ASSERT_TRUE(found.contains(key)) << what << " " << key;
    EXPECT_LE(largest(found.at(key).sub(value)), relative * largest(value) + floor_of(key) * scale + rounded)
        << what << " of " << key;
  }
}

Named moved(const Named& from, const Named& to) {
  Named all;
  for (const auto& [key, value] : to) all[key] = value.sub(from.at(key));
  return all;
}

/// The optimizer clips the last gradients where they stand, in some stages: their length is compared step by step, from
/// the log, and here their direction.
Named unit_length(const Named& all) {
  double squares = 0;
  for (const auto& [key, value] : all) squares += value.square().sum().item<double>();
  Named scaled;
  for (const auto& [key, value] : all) scaled[key] = value.div(std::sqrt(std::max(squares, 1e-30)));
  return scaled;
}

/// A strict run ends before the first step that has a row that is not usable, and all ranks say the same.
void expect_refusal(const Case& c, const Outcome& outcome, const std::vector<size_t>& rows) {
  for (const auto& error : outcome.errors) EXPECT_EQ(error, outcome.errors[0]);
  const auto named = [&](size_t row) {
    size_t line = row + 1;
    for (const size_t before : c.broken_lines) line += before <= row ? 1 : 0;
    return !c.usable(row) && outcome.errors[0].find(".jsonl:" + std::to_string(line) + ":") != std::string::npos;
  };
  EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), named)) << outcome.errors[0];
}

void expect_step(const StepDone& told, const Alone::Step& wanted) {
  if (wanted.targets == 0) {
    EXPECT_TRUE(std::isnan(told.loss)) << "nothing was trained in step " << told.step;
  } else {
    EXPECT_NEAR(told.loss, wanted.loss, kLoss * std::max(1.0, wanted.loss)) << "step " << told.step;
  }
  EXPECT_NEAR(told.grad_norm, wanted.norm, kGradient * wanted.norm) << "step " << told.step;
}

void expect_as_alone(const Case& c, const Dataset& data, const Outcome& outcome, Communicator& comm) {
  Alone alone(c, data, comm);
  Alone::Step sum;
  size_t logged = 0;
  bool refused = false;
  for (size_t k = 0; k < outcome.steps.size() && !refused; ++k) {
    const int64_t most = c.world * c.starts[k].batch * c.starts[k].accumulation;
    const auto bad = [&](size_t row) { return c.strict && !c.usable(row); };
    for (int64_t s = 0; s < outcome.steps[k]; ++s) {
      const auto rows = alone.window(most);
      ASSERT_FALSE(std::any_of(rows.begin(), rows.end(), bad)) << "a strict run used a row that is not usable";
      const Alone::Step step = alone.step(rows);
      ASSERT_LT(logged, outcome.log.size());
      expect_step(outcome.log[logged++], step);
      sum.tokens += step.tokens, sum.samples += step.samples, sum.skipped += step.skipped;
    }
    if (k + 1 == outcome.steps.size() && !outcome.errors[0].empty()) {
      EXPECT_EQ(outcome.state.cursor, alone.cursor());
      const auto rows = alone.window(most);
      expect_refusal(c, outcome, rows);
      refused = true;
    }
  }
  EXPECT_EQ(logged, outcome.log.size());
  EXPECT_EQ(outcome.state.tokens_seen, sum.tokens);
  EXPECT_EQ(outcome.state.samples_seen, sum.samples);
  EXPECT_EQ(outcome.state.skipped_rows, sum.skipped);
  const LoaderCursor end{.epoch = c.epochs, .rows = 0};
  EXPECT_TRUE(refused || (outcome.state.cursor == end && alone.cursor() == end)) << "rows were left";
  if (alone.updates() == 0) return;
  const Named weights = alone.job().weights(), gradients = unit_length(alone.job().gradients());
  double top = 0, weight = 0;
  for (const auto& [key, value] : gradients) top = std::max(top, largest(value));
  for (const auto& [key, value] : weights) weight = std::max(weight, largest(value));
  expect_near(unit_length(outcome.gradients), gradients, kGradient, top, 0, "gradient");
  // What is added to a weight is rounded to a weight's last place, once a step.
  const double steps = static_cast<double>(alone.updates());
  expect_near(moved(outcome.before, outcome.after), moved(outcome.before, weights), kMovement, steps * kRate / kEpsilon,
              steps * weight * 6e-8, "movement");
}

TEST(StepContractFuzz, RunsOnAnyRanksEqualOneProcessRowByRow) {
  const Env env = Env::process();
  // Sanitizer builds set LOCKSTEP_TEST_SCALE: the same paths, fewer times.
  const double scale = env.has("LOCKSTEP_TEST_SCALE") ? std::stod(*env.text("LOCKSTEP_TEST_SCALE")) : 1.0;
  const auto total = env.integer("LOCKSTEP_FUZZ_RUNS").value_or(std::llround(60 * scale));
  const auto seed = static_cast<uint64_t>(env.integer("LOCKSTEP_FUZZ_SEED").value_or(20261122));
  std::cout << "fuzz: " << total << " runs, seed " << seed << std::endl;
  for (int64_t i = 0; i < total && !HasFailure(); ++i) {
    Case c = random_case(seed + static_cast<uint64_t>(i));
    c.job.adamw.epsilon = kEpsilon;
    const File file(c);
    const Dataset data = file.read();
    Outcome outcome;
    ASSERT_NO_THROW(outcome = run(c, data)) << c.words();
    run_ranks(1, [&](Rank& rank) {
      SCOPED_TRACE(c.words());  // of this thread
      expect_as_alone(c, data, outcome, rank.data());
    });
  }
}

}  // namespace
}  // namespace lockstep
