// Random steps over ranks and stages, of random models with a tower for pictures and one for sound: any mix of media in a
// row, several of a kind, uneven rows, ranks without rows or without a medium. Every gradient must equal that of one
// process on the union, a rank runs no block of a tower whose media it has not, what is nowhere moves no byte, and nothing
// may hang. LOCKSTEP_FUZZ_STEPS (default 300), LOCKSTEP_FUZZ_RANKS (at most; 8) and LOCKSTEP_FUZZ_SEED choose length,
// width and start.
#include <cmath>
#include <iostream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "lockstep/base/env.h"
#include "lockstep/exec/test_job.h"
#include "lockstep/exec/test_towers.h"
#include "lockstep/testing/sampled.h"

namespace lockstep {
namespace {

using namespace test;  // NOLINT: the job of these tests

/// How often a rank lent a tower that it did not run, and a tower was nowhere.
struct Served {
  int64_t lent = 0, nowhere = 0;
};

/// Holds a rank to what the step contract promises of its blocks, micro-batch by micro-batch.
class Watched {
 public:
  Watched(Job& job, Communicator& comm, const std::string& where)
      : plan_(job.plan()), comm_(comm), where_(where), runs_(plan_.steps.size()), used_on_(plan_.units.size()) {
    for (const Step& step : plan_.steps) {
      for (const int unit : step.units) used_on_[static_cast<size_t>(unit)] |= step.runs_on;
    }
    job.executor().watch(
        {.synchronize = [this] { ++runs_[at_]; },
         .stands = [this](const Step& step, MemoryPhase) { at_ = static_cast<size_t>(&step - plan_.steps.data()); }});
    job.ran = [this](Modalities here, Modalities anywhere) { look(here, anywhere); };
  }
  const Served& served() const { return served_; }

 private:
  void look(Modalities here, Modalities anywhere) {
    for (size_t s = 0; s < runs_.size(); ++s) {
      EXPECT_EQ(runs_[s] > 0, here.meets(plan_.steps[s].runs_on)) << where_ << ": block " << plan_.steps[s].block;
      runs_[s] = 0;
    }
    std::map<std::string, int64_t> bytes;
    for (const auto& line : comm_.figures().lines()) bytes[line.label] += line.bytes;
    for (size_t u = 0; u < used_on_.size(); ++u) {
      const auto moved = [&](const std::string& what) {
        const std::string label = plan_.units[u].name + what;
        return bytes[label] - before_[label];
      };
      const int64_t gathered = moved(" gather");
      if (!anywhere.meets(used_on_[u])) {
        EXPECT_EQ(gathered + moved(" grad"), 0) << where_ << ": " << plan_.units[u].name << " is used nowhere";
        ++served_.nowhere;
      } else if (plan_.gathers()) {
        EXPECT_GT(gathered, 0) << where_ << ": " << plan_.units[u].name;
        if (!here.meets(used_on_[u])) ++served_.lent;
      }
    }
    before_ = std::move(bytes);
  }

  const Plan& plan_;
  Communicator& comm_;
  std::string where_;
  std::vector<int64_t> runs_;              // of each step's block, in this micro-batch
  std::vector<Modalities> used_on_;        // of each unit
  std::map<std::string, int64_t> before_;  // bytes by label, when the last micro-batch was done
  size_t at_ = 0;
  Served served_;
};

/// Gradients of `num_steps` windows on `world` ranks, as rank 0 sees them.
std::vector<Named> gradients_of(const Towers& towers, const JobOptions& options,
                                const std::vector<std::vector<MicroBatch>>& steps, int ranks, size_t rows_of,
                                Served& served) {
  std::vector<Named> all(steps.size());
  const Model model = towers.model();
  run_ranks(ranks, [&](Rank& rank) {
    Job job(model, options, rank.data());
    const Watched watched(job, rank.data(), towers.words() + ", rank " + std::to_string(rank.id()));
    std::vector<size_t> mine;
    for (size_t r = 0; r < rows_of; ++r) {
      if (ranks == 1 || static_cast<int>(r) == rank.id()) mine.push_back(r);
    }
    for (size_t s = 0; s < steps.size(); ++s) {
      job.accumulate(steps[s], mine);
      Named gradients = job.gradients();
      if (rank.id() == 0) all[s] = std::move(gradients);
    }
    if (rank.id() != 0) return;
    served.lent += watched.served().lent;
    served.nowhere += watched.served().nowhere;
  });
  return all;
}

/// Each tensor within 1e-5 of the largest gradient of its component: a tower's are far smaller than the head's.
void expect_equal(const Named& together, const Named& alone, const Plan& plan, const std::string& where) {
  ASSERT_EQ(together.size(), alone.size()) << where;
  std::map<Component, double> largest;
  const auto visit = [&](const auto& see) {
    for (const Unit& unit : plan.units) {
      for (const auto& param : unit.params) {
        for (const auto& source : param.spec.sources) {
          if (alone.contains(source.key)) see(unit.component, source.key);
        }
      }
    }
  };
  visit([&](Component component, const std::string& key) {
    largest[component] = std::max(largest[component], alone.at(key).abs().max().item<double>());
  });
  visit([&](Component component, const std::string& key) {
    ASSERT_TRUE(together.contains(key)) << where << ", " << key;
    EXPECT_LE(together.at(key).sub(alone.at(key)).abs().max().item<double>(), 1e-5 * largest[component])
        << where << ", " << key;
  });
}

/// One step after another, five on the same ranks over the same model.
struct Drawn {
  JobOptions options;
  Towers towers;
  int world = 2;
  std::vector<std::vector<MicroBatch>> steps;
};

Drawn drawn(std::mt19937_64& random, int64_t number, int64_t most_ranks, size_t count) {
  Drawn job;
  job.world = 2 + static_cast<int>(random() % static_cast<uint64_t>(most_ranks - 1));
  job.options.plan.zero = {static_cast<int>(number % 4)};
  job.options.plan.recompute = random() % 2 == 0;
  job.options.plan.recompute_vision = random() % 2 == 0;
  for (const Component component :
       {Component::kVision, Component::kAudio, Component::kAudioProjector, Component::kTalker}) {
    if (random() % 4 == 0) job.options.plan.frozen.insert(component);
  }
  if (random() % 6 == 0) job.options.plan.frozen.insert(Component::kLlm);
  job.options.plan.shared_weights = number % 8 == 7;  // every second one of zero3
  job.options.seed = random();
  job.towers = random_towers(random, random() % 2 == 0);
  job.steps.resize(count);
  for (auto& window : job.steps) {
    for (uint64_t m = 1 + random() % 3; m > 0; --m)
      window.push_back(random_mixed_batch(random, job.world, 3, job.towers));
  }
  return job;
}

TEST(Fuzz, MixedBatchesOnAnyRanksEqualOneProcessOnTheUnion) {
  const Env env = Env::process();
  // Sanitizer builds set LOCKSTEP_TEST_SCALE: the same paths, fewer times.
  const double scale = env.has("LOCKSTEP_TEST_SCALE") ? std::stod(*env.text("LOCKSTEP_TEST_SCALE")) : 1.0;
  const auto total = env.integer("LOCKSTEP_FUZZ_STEPS").value_or(std::llround(300 * scale));
  const auto seed = static_cast<uint64_t>(env.integer("LOCKSTEP_FUZZ_SEED").value_or(20261121));
  const int64_t most_ranks = std::max<int64_t>(2, env.integer("LOCKSTEP_FUZZ_RANKS").value_or(8));
  std::cout << "fuzz: " << total << " steps on 2 to " << most_ranks << " ranks, seed " << seed << std::endl;
  std::mt19937_64 random(seed);
  constexpr int64_t kPerJob = 5;
  Served served;
  for (int64_t done = 0; done < total && !HasFailure(); done += kPerJob) {
    Drawn job = drawn(random, done / kPerJob, most_ranks, kPerJob);
    Served alone;
    const auto rows_of = static_cast<size_t>(job.world);
    const auto reference = gradients_of(job.towers, job.options, job.steps, 1, rows_of, alone);
    job.options.plan.world = job.world;
    const auto together = gradients_of(job.towers, job.options, job.steps, job.world, rows_of, served);
    const Plan plan = make_plan(job.towers.model(), job.options.plan);
    for (size_t s = 0; s < job.steps.size(); ++s) {
      expect_equal(together[s], reference[s], plan,
                   "seed " + std::to_string(seed) + ", step " + std::to_string(done + static_cast<int64_t>(s)) + ", " +
                       plan.options.zero.name() + ", " + std::to_string(job.world) + " ranks, " + job.towers.words());
    }
    if (done > 0 && done % 500 == 0) std::cout << "fuzz: " << done << " steps" << std::endl;
  }
  std::cout << "fuzz: rank 0 lent units that it did not run " << served.lent << " times, and " << served.nowhere
            << " times a unit was used nowhere" << std::endl;
  if (total < 100) return;
  EXPECT_GT(served.lent, 0);
  EXPECT_GT(served.nowhere, 0);
}

/// Weights after a few steps of accumulation, on rank 0.
Named trained(const Model& model, JobOptions options, const std::vector<std::vector<MicroBatch>>& steps, int world) {
  Named weights;
  options.plan.world = world;
  run_ranks(world, [&](Rank& rank) {
    Job job(model, options, rank.data());
    for (const auto& window : steps) {
      job.accumulate(window, {static_cast<size_t>(rank.id())});
      job.update();
    }
    Named mine = job.weights();
    if (rank.id() == 0) weights = std::move(mine);
  });
  return weights;
}

TEST(PicturesOfAnySize, AllStagesAndRecomputeGiveTheSameBits) {
  const int world = 3;
  std::mt19937_64 random(31);
  Sampled sampled;
  for (const Dtype compute : {Dtype::kF32, Dtype::kBF16, Dtype::kF16}) {
    const Model model = qwen_vl_model(compute == Dtype::kBF16);
    std::vector<std::vector<MicroBatch>> steps(3);
    for (auto& window : steps) {
      for (int m = 0; m < 2; ++m) window.push_back(random_micro_batch(random, world, 3, random_picture_row));
    }
    JobOptions options{.plan = {.zero = {3}, .compute = compute}};
    const Named reference = trained(model, options, steps, world);
    for (int stage = 0; stage <= 3; ++stage) {
      for (const bool recompute : {true, false}) {
        if (!sampled.takes()) continue;
        options.plan.zero = {stage};
        options.plan.recompute = options.plan.recompute_vision = recompute;
        EXPECT_TRUE(bit_equal(trained(model, options, steps, world), reference))
            << "zero" << stage << " recompute " << recompute;
      }
    }
    options.plan.shared_weights = true;
    EXPECT_TRUE(bit_equal(trained(model, options, steps, world), reference)) << "weights that stand in memory once";
  }
}

}  // namespace
}  // namespace lockstep
