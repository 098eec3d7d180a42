// Maps that are made, judged by a rehearsal of the step that they are made for.
#include "lockstep/session/placement.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/plan/adapters.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/device_load.h"
#include "lockstep/session/rehearsed_rows.h"
#include "lockstep/testing/sampled.h"

namespace lockstep {
namespace {

constexpr const char* kConfigs[] = {"LLaVA-1.5-7B",    "LLaVA-1.5-13B",  "Qwen2.5-7B",      "Qwen2.5-32B",
                                    "Qwen2.5-72B",     "Qwen2.5-VL-3B",  "Qwen2.5-VL-7B",   "Qwen2.5-VL-32B",
                                    "Qwen2.5-VL-72B",  "InternVL2.5-8B", "InternVL2.5-26B", "MiniCPM-V-2.6",
                                    "Mistral-7B-v0.1", "Qwen3-8B"};

RehearsalOptions gpus(int count) {
  RehearsalOptions out{.on_cpu = false, .transport = "nccl", .alike = true, .save = false, .evaluate = false};
  for (int i = 0; i < count; ++i) out.device_names.push_back(fmt::format("cuda:{}", i));
  return out;
}

struct Balance {
  double ratio = 1;  // most over least of the devices' peaks
  double bound = 1;  // the least that whole blocks allow
  std::vector<std::string> notices;
};

ModelFolder config(const std::string& name) {
  return ModelFolder(std::filesystem::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs" / name);
}

std::shared_ptr<const AdapterLayout> adapters_of(const Model& model) {
  AdapterChoice choice;
  choice.config.targets.names = {"all-linear"};
  return std::make_shared<const AdapterLayout>(choose_adapters(model, naming_of_adapters(model, ""), choice));
}

Balance balance(const std::string& config_name, int devices, PlanOptions options, bool adapted = false) {
  const ModelFolder folder = config(config_name);
  const Model& model = folder.model;
  if (adapted) options.adapters = adapters_of(model);
  const RowsOfStep rows_of_step = RehearsedRows::typical(folder, 2048).step(1, options.training ? 2 * devices : 1);
  const PlacementOptions wanted{.device_map = "auto"};
  const RehearsalOptions rehearsed = gpus(devices);
  PlanOptions placed = options;
  ChosenPlacement chosen = choose_placement(rehearsed, wanted, model, options, rows_of_step);
  placed.placement = std::move(chosen.placement);
  const MemoryForecast forecast = rehearse(model, make_plan(model, placed), rows_of_step, rehearsed);
  Balance out{.ratio = forecast.imbalance(), .notices = std::move(chosen.notices)};
  if (!options.training)
    out.bound = most_even_ratio(block_costs(model, options, rows_of_step, rehearsed), devices, /*micro_batches=*/1);
  return out;
}

double imbalance(const std::string& config_name, int devices, const PlanOptions& options) {
  return balance(config_name, devices, options).ratio;
}

TEST(AutoMap, UsesDevicesEvenlyInTraining) {
  constexpr double kLevelled = 1.001;  // what may move is levelled to the byte, but for whole numbers of elements
  Sampled sampled;
  for (const char* config : kConfigs) {
    if (!sampled.takes()) continue;
    EXPECT_LE(imbalance(config, 8, {.compute = Dtype::kBF16}), kLevelled) << config;
  }
  for (const int devices : {2, 3, 4}) {  // tied, so that its ends pull at each other
    EXPECT_LE(imbalance("Qwen2.5-VL-3B", devices, {.compute = Dtype::kBF16}), kLevelled) << devices;
  }
}

/// Nothing may move there, and a layer is placed whole: with four or five of them on a device no split is even, and that
/// is said.
TEST(AutoMap, UsesDevicesInInferenceAsEvenlyAsWholeLayersAllow) {
  constexpr double kBesideCosts = 1.01;  // what blocks do to each other on one device
  int bounded = 0;
  for (const char* config : kConfigs) {
    for (const int devices : {2, 3, 4, 8}) {
      SCOPED_TRACE(fmt::format("{} on {}", config, devices));
      const Balance found = balance(config, devices, {.compute = Dtype::kBF16, .training = false});
      EXPECT_LE(found.ratio, std::max(kEven, kBesideCosts * found.bound));
      ASSERT_EQ(found.notices.size(), found.ratio > kEven ? 1U : 0U);
      if (found.ratio <= kEven) continue;
      ++bounded;
      const std::string bound = fmt::format("no split of them over {} devices is below ", devices);
      const size_t at = found.notices[0].find(bound);
      ASSERT_NE(at, std::string::npos) << found.notices[0];
      EXPECT_NEAR(std::stod(found.notices[0].substr(at + bound.size())), std::min(found.ratio, found.bound), 0.001);
      EXPECT_NE(found.notices[0].find("blocks are placed whole ("), std::string::npos) << "and the widest is named";
    }
  }
  EXPECT_GT(bounded, 0) << "no case left that says its bound";
}

/// What blocks cost, added up for six ranges of them, beside what each device then needs.
void expect_costs_to_add_up(const std::string& name, std::string_view kind, std::mt19937_64& random) {
  constexpr int kDevices = 6, kMicroBatches = 8;
  // What several blocks read stands once on each of their devices, and with its writer for each micro-batch on its way.
  constexpr double kBelow = 0.03, kLittle = 48 << 20;
  constexpr double kAbove = 0.10;  // while a block runs back, those behind it have let go of this micro-batch
  const ModelFolder folder = config(name);
  const Model& model = folder.model;
  PlanOptions options{.compute = Dtype::kBF16, .training = kind != "inference"};
  if (kind == "adapters") options.adapters = adapters_of(model);
  const int micro_batches = options.training ? kMicroBatches : 1;
  const RowsOfStep rows = RehearsedRows::typical(folder, 2048).step(1, micro_batches);
  const RehearsalOptions rehearsed = gpus(kDevices);

  const auto blocks = static_cast<int>(model.blocks.size());
  std::set<int> cuts;
  while (std::ssize(cuts) < kDevices - 1)
    cuts.insert(1 + static_cast<int>(random() % static_cast<uint64_t>(blocks - 1)));
  std::vector<int> devices;
  std::vector<DeviceLimit> limits;
  for (int block = 0; block < blocks; ++block) {
    devices.push_back(static_cast<int>(std::distance(cuts.begin(), cuts.upper_bound(block))));
  }
  for (int d = 0; d < kDevices; ++d) limits.push_back({.device = d});

  const auto loads = device_loads(block_costs(model, options, rows, rehearsed), devices, limits, micro_batches, {});
  options.placement = {.num_devices = kDevices, .device_of_block = devices};
  const MemoryForecast forecast = rehearse(model, make_plan(model, options), rows, rehearsed);
  for (size_t d = 0; d < loads.size(); ++d) {
    const auto found = static_cast<double>(forecast.devices[d].peak());
    const auto added_up = static_cast<double>(loads[d].peak());
    EXPECT_GE(added_up, found - std::max(kBelow * found, kLittle)) << fmt::format("{}, {}, device {}", name, kind, d);
    EXPECT_LE(added_up, found + std::max(kAbove * found, kLittle)) << fmt::format("{}, {}, device {}", name, kind, d);
  }
}

/// Wherever they are parted: what one makes of another's result stands with its reader then, not with its writer.
TEST(BlockCosts, AddUpToWhatARehearsedMapNeeds) {
  const auto seed = std::random_device()();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const char* kind : {"adapters", "all weights", "inference"})
    expect_costs_to_add_up("InternVL2.5-1B", kind, random);
  // Not all of its weights: the gradient of the tied one waits on one of the devices.
  for (const char* kind : {"adapters", "inference"}) expect_costs_to_add_up("Qwen2.5-VL-3B", kind, random);
}

/// Nearly nothing may move there: a layer's adapters are small.
TEST(AutoMap, SaysHowEvenWholeLayersCanBeWithAdapters) {
  const Balance found = balance("LLaVA-1.5-7B", 8, {.compute = Dtype::kBF16}, /*adapted=*/true);
  ASSERT_GT(found.ratio, kEven) << "else another case is needed";
  ASSERT_EQ(found.notices.size(), 1U);
  EXPECT_NE(found.notices[0].find("no split of them over 8 devices is below "), std::string::npos) << found.notices[0];
}

}  // namespace
}  // namespace lockstep
