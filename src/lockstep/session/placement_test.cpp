// Maps that are made, judged by a rehearsal of the step that they are made for.
#include "lockstep/session/placement.h"

#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lockstep/session/rehearsed_rows.h"

namespace lockstep {
namespace {

constexpr const char* kConfigs[] = {"LLaVA-1.5-7B",  "LLaVA-1.5-13B", "Qwen2.5-7B",     "Qwen2.5-32B",   "Qwen2.5-72B",
                                    "Qwen2.5-VL-3B", "Qwen2.5-VL-7B", "Qwen2.5-VL-32B", "Qwen2.5-VL-72B"};

RehearsalOptions gpus(int count) {
  RehearsalOptions out{.on_cpu = false, .transport = "nccl", .alike = true, .save = false, .evaluate = false};
  for (int i = 0; i < count; ++i) out.device_names.push_back(fmt::format("cuda:{}", i));
  return out;
}

/// Most over least of the devices' peaks.
double imbalance(const std::string& config_name, int devices, const PlanOptions& options) {
  const ModelFolder folder(std::filesystem::path(LOCKSTEP_FIXTURES).parent_path().parent_path() / "configs" /
                           config_name);
  const Model& model = folder.model;
  const RowsOfStep rows_of_step = RehearsedRows::typical(folder, 2048).step(1, options.training ? 2 * devices : 1);
  const PlacementOptions wanted{.device_map = "auto"};
  const RehearsalOptions rehearsed = gpus(devices);
  PlanOptions placed = options;
  placed.placement = choose_placement(rehearsed, wanted, model, options, rows_of_step).placement;
  const MemoryForecast forecast = rehearse(model, make_plan(model, placed), rows_of_step, rehearsed);
  return forecast.imbalance();
}

TEST(AutoMap, UsesDevicesEvenlyInTraining) {
  for (const char* config : kConfigs) {
    EXPECT_LE(imbalance(config, 8, {.compute = Dtype::kBF16}), 1.10) << config;
  }
  for (const int devices : {2, 3, 4}) {  // tied, so that its ends pull at each other
    EXPECT_LE(imbalance("Qwen2.5-VL-3B", devices, {.compute = Dtype::kBF16}), 1.10) << devices;
  }
}

/// Nothing may move there, and a layer is placed whole: with four or five of them on a device no split is even.
TEST(AutoMap, UsesDevicesInInferenceAsEvenlyAsWholeLayersAllow) {
  for (const char* config : kConfigs) {
    for (const int devices : {2, 3, 4, 8}) {
      EXPECT_LE(imbalance(config, devices, {.compute = Dtype::kBF16, .training = false}), devices == 8 ? 1.22 : 1.12)
          << config << " on " << devices;
    }
  }
}

}  // namespace
}  // namespace lockstep
