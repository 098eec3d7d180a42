// Bytes at the peak of every device, of a device map for a model of which there is only the config.
//
// Usage: device_map_peaks CONFIG_FOLDER DEVICES MAP [--level 0|1]      MAP: balanced, sequential … or a JSON file
// Costs are estimated from declarations alone: bf16 compute, everything trained with AdamW, 8 micro-batches of one row
// of 2,048 tokens and as many patches, recompute. One line of JSON.
#include <algorithm>
#include <iostream>
#include <map>
#include <span>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/plan/level.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace {

constexpr int64_t kRows = 2048, kChunkRows = 512, kMicroBatches = 8;
constexpr int64_t kWeight = 2, kGradient = 4, kMovable = 12;  // bytes a parameter: bf16, fp32, master and two moments

/// What enters a block is kept; while it runs, each product and its gradient are there. The head makes logits by
/// chunks.
BlockCost cost_of(const Block& block, const std::map<std::string, int>& owners, int64_t vocab) {
  BlockCost cost{.block = block.name()};
  int64_t outputs = 0, width = 0;
  for (const auto& param : block.params()) {
    if (param.tied) {
      cost.tied = param.numel() * (kWeight + kGradient);
      cost.tied_to = owners.at(param.sources[0].key);
    } else {
      cost.state += param.numel() * (kWeight + kGradient);
      cost.movable += param.numel() * kMovable;
    }
    if (param.shape.size() < 2) continue;
    outputs += param.shape[0];
    width = width == 0 ? param.shape.back() : std::min(width, param.shape.back());
  }
  const bool reads_tokens = std::ranges::find(block.reads(), "input_ids") != block.reads().end();
  const bool makes_logits = outputs == vocab && !reads_tokens;
  cost.saved = reads_tokens ? 0 : kRows * width * kWeight;
  cost.work = makes_logits ? kChunkRows * vocab * 8 : kRows * (reads_tokens ? width : outputs) * 2 * kWeight;
  return cost;
}

std::vector<BlockCost> costs_of(const Model& model) {
  std::map<std::string, int> owners;
  std::vector<BlockCost> costs;
  for (const auto& block : model.blocks) {
    costs.push_back(cost_of(*block, owners, model.dims.vocab));
    for (const auto& param : block->params()) {
      if (!param.tied) owners[param.sources[0].key] = static_cast<int>(costs.size()) - 1;
    }
  }
  return costs;
}

Json peaks(const std::string& folder, int count, const std::string& map, bool level) {
  const HfConfig config = HfConfig::load(folder);
  const Model model = family_of(config).build(config);
  const auto costs = costs_of(model);
  std::vector<DeviceLimit> limits;
  limits.reserve(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device) limits.push_back({.device = device});
  Json out = {{"devices", count}, {"notices", Json::array()}};
  std::vector<DeviceLoad> loads;
  if (is_map_word(map)) {
    const AutoMap made =
        make_auto_map(costs, limits, {.kind = map_kind(map), .micro_batches = kMicroBatches, .level = level});
    loads = made.loads;
    int64_t moved = 0, movable = 0;
    for (size_t i = 0; i < costs.size(); ++i) {
      for (const Piece& piece : made.pieces[i]) moved += piece.device == made.devices[i] ? 0 : piece.end - piece.begin;
      movable += costs[i].movable;
    }
    out["moved"] = static_cast<double>(moved) / static_cast<double>(movable);
  } else {
    const DeviceMap read = read_device_map(model, map, count);
    out["notices"] = read.notices;
    const auto pieces = level ? level_movable(costs, read.devices, limits, {.micro_batches = kMicroBatches})
                              : std::vector<std::vector<Piece>>();
    loads = device_loads(costs, read.devices, limits, kMicroBatches, pieces);
  }
  for (const auto& load : loads) out["peaks"].push_back(load.peak());
  return out;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() != 3 && !(args.size() == 5 && args[3] == "--level")) {
    std::cerr << "device_map_peaks CONFIG_FOLDER DEVICES MAP [--level 0|1]\n";
    return 2;
  }
  try {
    std::cout << lockstep::peaks(args[0], std::stoi(args[1]), args[2], args.size() == 3 || args[4] == "1").dump()
              << "\n";
  } catch (const lockstep::Error& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  return 0;
}
