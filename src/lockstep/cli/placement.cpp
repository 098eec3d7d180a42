#include "lockstep/cli/placement.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/plan/level.h"
#include "lockstep/plan/max_memory.h"

namespace lockstep {
namespace {

/// What a process takes of a GPU beside tensors: CUDA's context with the kernels that were loaded, and NCCL's buffers.
/// 0.5 to 0.7 GiB on recent GPUs.
constexpr int64_t kGpuContextBytes = int64_t{614} << 20;

std::vector<DeviceLimit> limits_of(const RehearsalOptions& scene, const PlacementFlags& flags) {
  const auto count = static_cast<int>(scene.device_names.size());
  if (!flags.max_memory.empty()) return parse_max_memory(flags.max_memory, count);
  std::vector<DeviceLimit> limits;
  limits.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) limits.push_back({i, kNoLimit});  // --memory_limit splits batches, not models
  return limits;
}

/// Pieces in bytes of what may move -> shares in parts of it.
std::vector<OptimizerShare> shares_of(const std::vector<Piece>& pieces, const BlockCost& cost, int device) {
  const bool with_block = pieces.empty() || (pieces.size() == 1 && pieces[0].device == device);
  if (with_block || cost.movable == 0) return {};
  std::vector<OptimizerShare> shares;
  shares.reserve(pieces.size());
  for (const auto& piece : pieces) {
    shares.push_back({piece.device, static_cast<double>(piece.begin) / static_cast<double>(cost.movable),
                      static_cast<double>(piece.end) / static_cast<double>(cost.movable)});
  }
  return shares;
}

/// LibTorch keeps a GPU's tensors itself, and takes its limit as a part of the GPU.
void limit_gpus(const Devices& devices, int64_t limit) {
  const CudaApi& cuda = require_cuda_library();
  for (const auto& device : devices.blocks) {
    int index = 0;
    const std::string& name = device->torch_device();
    std::from_chars(name.data() + name.find(':') + 1, name.data() + name.size(), index);
    const auto total = static_cast<double>(cuda.memory(index).total_bytes);
    cuda.set_memory_fraction(index, std::min(1.0, static_cast<double>(limit) / std::max(total, 1.0)));
  }
}

/// Blocks on "cpu" are computed there: the host is then one more device, behind the others.
void place_on_host(Placement& placement, const RehearsalOptions& scene) {
  const auto driven = static_cast<int>(scene.device_names.size());
  placement.num_devices = driven;
  for (int& device : placement.device_of_block) {
    if (device < 0) device = scene.host_is_device() ? 0 : driven;
    placement.num_devices = std::max(placement.num_devices, device + 1);
  }
}

std::string name_of_device(const Job& job, const RunFlags& flags, int index) {
  if (flags.placement.virtual_devices > 0) return fmt::format("virtual:{}", index);
  if (job.device == "cpu") return "cpu";
  int first = 0;
  const char* digits = job.device.data() + job.device.find(':') + 1;
  std::from_chars(digits, job.device.data() + job.device.size(), first);
  return fmt::format("cuda:{}", first + index);
}

/// Blocks as a map has them, and pieces of what may move as levelling has them.
Placement placed(const std::vector<BlockCost>& costs, const AutoMap& map, const PlanOptions& options,
                 const RehearsalOptions& scene) {
  Placement placement = options.placement;
  placement.device_of_block = map.devices;
  bool shared = false;
  for (size_t b = 0; b < costs.size() && !map.pieces.empty(); ++b) {
    placement.optimizer_shares.push_back(shares_of(map.pieces[b], costs[b], map.devices[b]));
    shared = shared || !placement.optimizer_shares.back().empty();
  }
  if (!shared) placement.optimizer_shares.clear();
  place_on_host(placement, scene);
  return placement;
}

/// What a rehearsal of the map needs beyond what blocks were allowed: it is said, since costs are a little less exact.
std::vector<std::string> over_limits(const MemoryForecast& forecast, const std::vector<DeviceLimit>& limits,
                                     const PlacementFlags& flags) {
  std::vector<std::string> notices;
  for (const auto& limit : limits) {
    if (limit.device < 0 || limit.bytes == kNoLimit) continue;
    const DeviceForecast& device = forecast.devices.at(static_cast<size_t>(limit.device));
    if (device.peak() <= limit.bytes) continue;
    notices.push_back(
        fmt::format("--max_memory gives {} {}, and its blocks need {} at their peak (--device_map {}): a "
                    "smaller value, or --memory_limit, keeps to it",
                    device.name, format_bytes(limit.bytes), format_bytes(device.peak()), flags.device_map));
  }
  return notices;
}

/// Costs add up to what a device needs but for what blocks on it do to each other: the map is rehearsed, what it
/// differs by is charged to a block of each device, and what may move is levelled once more.
ChosenPlacement made_map(const RehearsalOptions& scene, const PlacementFlags& flags, const Model& model,
                         const PlanOptions& options, const RowsOfWindow& rows) {
  auto costs = block_costs(model, options, rows, scene);
  const bool moves = options.training && !options.placement.offload_optimizer;
  const int micro_batches = options.training ? static_cast<int>(rows.size()) : 1;
  const auto limits = limits_of(scene, flags);
  AutoMap map = make_auto_map(costs, limits,
                              {.kind = map_kind(flags.device_map), .micro_batches = micro_batches, .level = moves});
  PlanOptions tried = options;
  tried.placement = placed(costs, map, options, scene);
  const MemoryForecast forecast = rehearse(model, make_plan(model, tried), rows, scene);
  if (!moves || map_kind(flags.device_map) != MapKind::kBalanced || !flags.max_memory.empty()) {
    return {std::move(tried.placement), over_limits(forecast, limits, flags)};
  }
  for (const auto& load : map.loads) {
    const auto first = std::find(map.devices.begin(), map.devices.end(), load.device);
    if (load.device < 0 || first == map.devices.end()) continue;
    const int64_t found = forecast.devices[static_cast<size_t>(load.device)].peak();
    costs[static_cast<size_t>(first - map.devices.begin())].state += found - load.peak();
  }
  map.pieces = level_movable(costs, map.devices, limits, {.micro_batches = micro_batches});
  return {placed(costs, map, options, scene), {}};
}

}  // namespace

ChosenPlacement choose_placement(const RehearsalOptions& scene, const RunFlags& run, const Model& model,
                                 const PlanOptions& options, const std::function<RowsOfWindow()>& rows) {
  const PlacementFlags& flags = run.placement;
  const auto count = static_cast<int>(scene.device_names.size());
  PlanOptions with = options;
  with.placement.offload_optimizer = run.offloads_optimizer() && options.training;
  with.placement.offload_params = run.offloads_params();
  if (scene.host_is_device() && (with.placement.offload_optimizer || with.placement.offload_params)) {
    throw usage_error("offloading to host memory (--offload, --deepspeed): the device is the CPU, whose memory that is",
                      "it is for GPUs; --virtual_devices 1 tries it without one");
  }
  if (is_map_word(flags.device_map)) return made_map(scene, flags, model, with, rows());
  ChosenPlacement chosen{.placement = with.placement, .notices = {}};
  if (flags.device_map.empty()) {
    if (count > 1) {
      throw usage_error(
          fmt::format("--virtual_devices {} and no --device_map: nothing would stand on {} of them", count, count - 1),
          "--device_map auto");
    }
  } else {
    DeviceMap map = read_device_map(model, flags.device_map, count);
    chosen.placement.device_of_block = std::move(map.devices);
    chosen.notices = std::move(map.notices);
  }
  place_on_host(chosen.placement, scene);
  return chosen;
}

Json placement_json(const Placement& placement) {
  Json shares = Json::array();
  for (const auto& block : placement.optimizer_shares) {
    Json list = Json::array();
    for (const auto& share : block) list.push_back({share.device, share.begin, share.end});
    shares.push_back(std::move(list));
  }
  return {{"num_devices", placement.num_devices},
          {"device_of_block", placement.device_of_block},
          {"optimizer_shares", shares},
          {"offload_params", placement.offload_params},
          {"offload_optimizer", placement.offload_optimizer}};
}

Placement placement_from_json(const Json& json) {
  Placement placement{.num_devices = json.at("num_devices").get<int>(),
                      .device_of_block = json.at("device_of_block").get<std::vector<int>>(),
                      .offload_params = json.at("offload_params").get<bool>(),
                      .offload_optimizer = json.at("offload_optimizer").get<bool>()};
  for (const auto& block : json.at("optimizer_shares")) {
    auto& shares = placement.optimizer_shares.emplace_back();
    for (const auto& share : block) {
      shares.push_back({share.at(0).get<int>(), share.at(1).get<double>(), share.at(2).get<double>()});
    }
  }
  return placement;
}

RehearsalOptions rehearsal_scene(const Job& job, const RunFlags& flags, int64_t loss_chunk) {
  const std::string backend = job.comm.data ? job.comm.data->backend_name() : "solo";
  RehearsalOptions scene{.on_cpu = job.device == "cpu",
                         .virtual_devices = flags.placement.virtual_devices > 0,
                         .transport = backend == "gloo" || backend == "nccl" ? backend : "shm",
                         .loss_chunk = loss_chunk,
                         .alike = true,
                         .context_bytes = job.device == "cpu" ? 0 : kGpuContextBytes};
  const int64_t limit = flags.placement.limit();
  for (int i = 0; i < job.num_devices; ++i) {
    scene.device_names.push_back(name_of_device(job, flags, i));
    scene.capacities.push_back(limit == DeviceMemory::kNoLimit ? 0 : limit);
  }
  return scene;
}

Devices make_devices(const Job& job, const RunFlags& flags, const Plan& plan) {
  const int64_t limit = flags.placement.limit();
  const int planned = plan.options.placement.num_devices;
  Devices devices;
  if (flags.placement.virtual_devices > 0) {
    devices = Devices::virtual_ones(job.num_devices, limit);
  } else {
    devices = Devices::one(job.device);
    for (int i = 1; i < job.num_devices; ++i) {
      devices.blocks.push_back(Devices::one(name_of_device(job, flags, i)).blocks.front());
    }
    if (job.device == "cpu") devices.host->set_limit(limit);
    if (job.device != "cpu" && limit != DeviceMemory::kNoLimit) limit_gpus(devices, limit);
  }
  if (planned > job.num_devices) devices.blocks.push_back(devices.host);  // blocks that are computed there
  return devices;
}

}  // namespace lockstep
