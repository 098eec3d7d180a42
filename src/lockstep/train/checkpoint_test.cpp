// Checkpoints from the inside: what is read back is what was held, whatever cut it, and a failing rank leaves nothing.
#include "lockstep/state/checkpoint.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <tuple>

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/state/checkpoint_manifest.h"
#include "lockstep/state/checkpoint_names.h"
#include "lockstep/state/checkpoint_optimizer.h"
#include "lockstep/tensor/make.h"
#include "lockstep/testing/ranks.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

const fs::path kCheckpoint = fs::path(LOCKSTEP_FIXTURES) / "oracle" / "seed1" / "qwen2" / "checkpoint";

/// A folder of this test that goes away.
class Folder {
 public:
  Folder() {
    static std::atomic<int> count{0};
    path_ = fs::temp_directory_path() /
            ("lockstep_checkpoint_" + std::to_string(::getpid()) + "_" + std::to_string(count++));
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// One rank's stores over the fixture, in bf16 with float32 masters.
struct Held {
  Held(Rank& rank, int stage, const fs::path& dir = kCheckpoint)
      : model(family_of(HfConfig::load(dir)).build(HfConfig::load(dir))),
        weights(Weights::open(dir)),
        keys(KeyMap::match(model, weights)),
        plan(make_plan(model, {.world = rank.size(), .zero = {stage}, .compute = Dtype::kBF16})),
        store(plan, rank.id(), Devices::one("cpu")) {
    store.load(weights, keys);
  }

  /// Optimizer state that tells its unit and element, so that a wrong offset shows.
  void fill_state() {
    for (int i = 0; i < store.num_units(); ++i) {
      UnitState& unit = store.unit(i);
      if (unit.optimizer.empty()) continue;
      unit.updates = 7 + i;
      int slot = 1;
      for (const Tensor& tensor : {unit.optimizer[0].master, unit.optimizer[0].exp_avg, unit.optimizer[0].exp_avg_sq}) {
        std::vector<float> values;
        for (int64_t k = unit.optimised.begin; k < unit.optimised.end; ++k) {
          values.push_back(static_cast<float>(k) + 0.25F * static_cast<float>(i) + 1e-3F * static_cast<float>(slot));
        }
        tensor.copy_(from_values(values, {unit.optimised.size()}));
        ++slot;
      }
    }
  }

  Model model;
  Weights weights;
  KeyMap keys;
  Plan plan;
  ParamStore store;
};

CheckpointSaved save(Rank& rank, Held& held, const fs::path& dir, int64_t step = 3, int64_t limit = 0) {
  const ModelSource source{held.model, held.weights, held.keys};
  const SideFiles side = read_side_files(kCheckpoint);
  const std::string args = "{}";
  TrainerState state;
  state.global_step = step;
  state.cursor = {.epoch = 2, .rows = 14};
  state.since_log = {.loss = 0.1, .steps = 3, .correct_tokens = 5, .target_tokens = 9};
  state.total_loss = 1.0 / 3.0;
  return save_checkpoint({source, side, args, held.store, state}, {.output_dir = dir, .save_total_limit = limit},
                         rank.data(), rank.control());
}

/// Elements of padding are nobody's.
Tensor used(const Held& held, int i, const Tensor& tensor) {
  const Range part = intersect(held.store.unit(i).optimised, {0, held.plan.units[static_cast<size_t>(i)].numel});
  return tensor.narrow(0, 0, part.size());
}

TEST(Checkpoint, IsReadBackToTheBitByOtherRanksAndStages) {
  const Folder folder;
  run_ranks(3, [&](Rank& rank) {
    Held held(rank, 3);
    held.fill_state();
    save(rank, held, folder.path());
  });
  for (const auto& [world, stage] : std::vector<std::pair<int, int>>{{3, 3}, {1, 0}, {2, 0}, {2, 1}, {4, 3}}) {
    run_ranks(world, [&, world = world, stage = stage](Rank& rank) {
      Held expected(rank, stage), read(rank, stage, folder.path() / "checkpoint-3");
      expected.fill_state();
      const TrainerState state = resume_state(folder.path() / "checkpoint-3", read.store, rank.data(), rank.control());
      EXPECT_EQ(state.cursor, (LoaderCursor{.epoch = 2, .rows = 14}));
      EXPECT_EQ(state.since_log, (LogSums{.loss = 0.1, .steps = 3, .correct_tokens = 5, .target_tokens = 9}));
      EXPECT_EQ(state.total_loss, 1.0 / 3.0);
      for (int i = 0; i < read.store.num_units(); ++i) {
        const UnitState &a = read.store.unit(i), &b = expected.store.unit(i);
        if (b.optimizer.empty()) continue;
        EXPECT_EQ(a.updates, 7 + i);
        for (auto slot : {&OptimizerState::master, &OptimizerState::exp_avg, &OptimizerState::exp_avg_sq}) {
          EXPECT_TRUE(at::equal(used(read, i, a.optimizer[0].*slot), used(expected, i, b.optimizer[0].*slot)))
              << world << " ranks, stage " << stage << ", unit " << i;
        }
        const Tensor own = a.optimizer[0].master.narrow(0, a.owned.begin - a.optimised.begin, a.owned.size());
        EXPECT_TRUE(at::equal(a.shard, to_dtype(own, Dtype::kBF16))) << "the weights follow their masters";
      }
    });
  }
}

TEST(Checkpoint, HoldsTheModelsFilesAndWeights) {
  const Folder folder;
  run_ranks(2, [&](Rank& rank) {
    Held held(rank, 3);
    save(rank, held, folder.path());
  });
  const fs::path saved = folder.path() / "checkpoint-3";
  EXPECT_NO_THROW(verify_folder(saved));
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    EXPECT_EQ(fs::exists(saved / name), fs::exists(kCheckpoint / name)) << name;
  }
  EXPECT_EQ(HfConfig::load(saved).text("torch_dtype", ""), "bfloat16");
  const Weights before = Weights::open(kCheckpoint), after = Weights::open(saved);
  ASSERT_EQ(before.specs().size(), after.specs().size());
  for (const auto& spec : before.specs()) {
    const Tensor expected = to_dtype(before.read(spec.name), Dtype::kBF16);
    EXPECT_TRUE(at::equal(after.read(spec.name), expected)) << spec.name;
  }
}

TEST(Checkpoint, AFailingRankIsNamedOnAllAndLeavesNothing) {
  const Folder folder;
  run_ranks(2, [&](Rank& rank) {
    Held held(rank, 3);
    save(rank, held, folder.path(), 1);
    const std::string taken = (folder.path() / "checkpoint-2").string() + ".tmp-" + std::to_string(::getpid());
    // Rank 1 alone cannot write: it does not hold what it should.
    if (rank.id() == 1) held.store.unit(0).optimizer[0].exp_avg = zeros({1}, Dtype::kF32);
    try {
      save(rank, held, folder.path(), 2);
      ADD_FAILURE() << "rank " << rank.id() << " saved";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("rank 1 of 2"), std::string::npos) << error.what();
    }
    rank.control().barrier("after the failure");
    EXPECT_FALSE(fs::exists(taken));
    EXPECT_FALSE(fs::exists(folder.path() / "checkpoint-2"));
  });
  EXPECT_NO_THROW(verify_folder(folder.path() / "checkpoint-1"));
}

TEST(Checkpoint, OldOnesGoAndDamagedOnesAreSkipped) {
  const Folder folder;
  run_ranks(1, [&](Rank& rank) {
    Held held(rank, 3);
    for (const int64_t step : {1, 2, 3, 4}) save(rank, held, folder.path(), step, 2);
    save(rank, held, folder.path(), 4, 2);  // again: takes the other's place
  });
  EXPECT_FALSE(fs::exists(folder.path() / "checkpoint-2"));
  std::vector<DamagedCheckpoint> damaged;
  EXPECT_EQ(latest_whole(folder.path(), damaged), folder.path() / "checkpoint-4");
  fs::resize_file(folder.path() / "checkpoint-4" / "tokenizer.json", 10);
  fs::create_directories(folder.path() / "checkpoint-9");
  fs::create_directories(folder.path() / "checkpoint-11.tmp-1");
  EXPECT_EQ(latest_whole(folder.path(), damaged), folder.path() / "checkpoint-3");
  ASSERT_EQ(damaged.size(), 2U);
  EXPECT_EQ(damaged[0].path, folder.path() / "checkpoint-9");
  EXPECT_NE(damaged[1].why.find("tokenizer.json: expected"), std::string::npos);
}

TEST(Checkpoint, DamagedOnesTakeNoPlaceAmongThoseThatAreKept) {
  const Folder folder;
  const auto at = [&](int64_t step) { return folder.path() / ("checkpoint-" + std::to_string(step)); };
  const auto steps = [&] {
    std::vector<int64_t> found;
    for (const auto& [step, path] : checkpoints_in(folder.path())) found.push_back(step);
    return found;
  };
  run_ranks(1, [&](Rank& rank) {
    Held held(rank, 3);
    for (const int64_t step : {2, 4, 6, 10}) save(rank, held, folder.path(), step);
    fs::remove(at(10) / "config.json");
    fs::remove(at(4) / kManifestName);
    save(rank, held, folder.path(), 7, 3);
    EXPECT_EQ(steps(), (std::vector<int64_t>{10, 7, 6, 4, 2}));  // three whole ones, whatever stands between them
    save(rank, held, folder.path(), 12, 2);
    EXPECT_EQ(steps(), (std::vector<int64_t>{12, 10, 7}));
    save(rank, held, folder.path(), 14, 2);
    EXPECT_EQ(steps(), (std::vector<int64_t>{14, 12}));
  });
}

TEST(Checkpoint, ItsBestIsTheOneOfThatNameBesideIt) {
  const Folder folder;
  fs::create_directories(folder.path() / "checkpoint-2");
  fs::create_directories(folder.path() / "checkpoint-4");
  TrainerState state;
  state.best_metric = 0.5;
  state.best_global_step = 2;
  state.best_model_checkpoint = "out/as/it/was/called/checkpoint-2";
  write_json(folder.path() / "checkpoint-4" / "trainer_state.json", to_json(state));
  TrainerState read = read_trainer_state(folder.path() / "checkpoint-4");
  EXPECT_EQ(read.best_model_checkpoint, (folder.path() / "checkpoint-2").string());
  EXPECT_EQ(read.best_metric, 0.5);
  fs::remove(folder.path() / "checkpoint-2");
  read = read_trainer_state(folder.path() / "checkpoint-4");
  EXPECT_EQ(read.best_model_checkpoint, "");
  EXPECT_EQ(read.best_metric, std::nullopt);
  EXPECT_EQ(read.best_global_step, 2);  // what a notice tells
}

TEST(Checkpoint, OneThatDoesNotSayHowManyStepsTrainedHasItsUpdates) {
  TrainerState state;
  state.updates = 7;
  state.loss_steps = 5;
  Json json = to_json(state);
  EXPECT_EQ(trainer_state_from_json(json, "state").loss_steps, 5);
  json["lockstep"].erase("loss_steps");
  EXPECT_EQ(trainer_state_from_json(json, "state").loss_steps, 7);
}

TEST(Checkpoint, ItsBestIsNoneForARunThatComparesByAnotherMetric) {
  TrainerState state;
  state.best_metric = 1.4;
  state.best_global_step = state.best_step_at_save = 2;
  state.best_model_checkpoint = "checkpoint-2";
  state.saves_without_better = state.evaluations_without_better = 1;
  state.best_of = "lowest loss";
  TrainerState same = trainer_state_from_json(to_json(state), "state"), other = same;
  same.compare_by("lowest loss");
  EXPECT_EQ(same.best_metric, 1.4);
  EXPECT_EQ(same.evaluations_without_better, 1);
  other.compare_by("highest anls");
  EXPECT_EQ(other.best_of, "highest anls");
  EXPECT_EQ(other.best_metric, std::nullopt);
  EXPECT_EQ(other.best_model_checkpoint, "");
  EXPECT_EQ(std::tuple(other.best_global_step, other.best_step_at_save), std::tuple(0, -1));
  EXPECT_EQ(std::tuple(other.saves_without_better, other.evaluations_without_better), std::tuple(0, 0));
  state.best_of.clear();  // of a checkpoint that does not say
  TrainerState old = trainer_state_from_json(to_json(state), "state");
  old.compare_by("highest anls");
  EXPECT_EQ(old.best_metric, 1.4);
}

/// What reading the optimizer back is refused with; "" where it is read.
std::string refusal_of_state(Held& held, const fs::path& dir) {
  try {
    read_optimizer_shards(held.store, dir);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kCheckpoint);
    return error.message();
  }
  return "";
}

TEST(Checkpoint, MomentsThatAreNoNumbersAreNamed) {
  run_ranks(1, [&](Rank& rank) {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN(), kMost = std::numeric_limits<double>::infinity();
    for (const auto& [slot, name, value] : std::vector<std::tuple<Tensor OptimizerState::*, std::string, double>>{
             {&OptimizerState::exp_avg, ".exp_avg:", kNone},
             {&OptimizerState::exp_avg, ".exp_avg:", -kMost},
             {&OptimizerState::exp_avg_sq, ".exp_avg_sq:", kMost},
             {&OptimizerState::exp_avg_sq, ".exp_avg_sq:", -1.0},
             {&OptimizerState::master, ".master:", kNone}}) {
      const Folder folder;
      Held held(rank, 3);
      held.fill_state();
      (held.store.unit(0).optimizer.at(0).*slot).narrow(0, 1, 1).fill_(value);
      write_optimizer_shard(held.store, 1, folder.path());
      EXPECT_EQ(refusal_of_state(held, folder.path()).find(held.plan.units[0].name + name), 0U) << name << value;
    }
  });
}

TEST(Checkpoint, MomentsThatAreMissingBehindUpdatesAreNamed) {
  run_ranks(1, [&](Rank& rank) {
    for (const int64_t updates : {0, 5}) {
      const Folder folder;
      Held held(rank, 3);
      held.fill_state();
      held.store.unit(0).updates = updates;
      write_optimizer_shard(held.store, 1, folder.path());
      const fs::path file = folder.path() / optimizer_file_name(0, 1);
      const std::string key = held.plan.units[0].name + ".exp_avg";
      std::string bytes = read_text(file);
      bytes.replace(bytes.find("\"" + key + "\"") + key.size(), 1, "X");
      std::ofstream(file, std::ios::binary) << bytes;
      const std::string refused = refusal_of_state(held, folder.path());
      EXPECT_EQ(refused, updates == 0 ? "" : key + ": expected it in the optimizer files behind 5 updates, found none");
    }
  });
}

TEST(Checkpoint, OtherTrainedPartsAreRefused) {
  const Folder folder;
  run_ranks(1, [&](Rank& rank) {
    Held held(rank, 3);
    save(rank, held, folder.path());
    held.plan =
        make_plan(held.model, {.world = 1, .compute = Dtype::kBF16, .freeze = {.prefixes = {"model.layers.0."}}});
    ParamStore other(held.plan, 0, Devices::one("cpu"));
    EXPECT_THROW(resume_state(folder.path() / "checkpoint-3", other, rank.data(), rank.control()), UserError);
  });
}

}  // namespace
}  // namespace lockstep
