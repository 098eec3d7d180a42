#include "lockstep/session/placement.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/device_load.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/plan/level.h"
#include "lockstep/plan/max_memory.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {
namespace {

/// What a process takes of a GPU beside tensors: CUDA's context with the kernels that were loaded, and NCCL's buffers (which are
/// there once a job has started). 0.5 to 0.7 GiB on recent GPUs.
constexpr int64_t kGpuContextBytes = int64_t{614} << 20;

std::vector<DeviceLimit> limits_of(const RehearsalOptions& devices, const PlacementOptions& wanted) {
  const auto count = static_cast<int>(devices.device_names.size());
  if (!wanted.max_memory.empty()) return parse_max_memory(wanted.max_memory, count);
  std::vector<DeviceLimit> limits;
  limits.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) limits.push_back({i, kNoLimit});  // --memory_limit splits batches, not models
  return limits;
}

/// Slices in bytes of what may move -> shares in parts of it.
std::vector<OptimizerShare> shares_of(const std::vector<StateSlice>& slices, const BlockCost& cost, int device) {
  const bool with_block = slices.empty() || (slices.size() == 1 && slices[0].device == device);
  if (with_block || cost.movable == 0) return {};
  std::vector<OptimizerShare> shares;
  shares.reserve(slices.size());
  for (const auto& slice : slices) {
    shares.push_back({slice.device, static_cast<double>(slice.begin) / static_cast<double>(cost.movable),
                      static_cast<double>(slice.end) / static_cast<double>(cost.movable)});
  }
  return shares;
}

/// LibTorch keeps a GPU's tensors itself, and is told their limit beside.
void limit_gpus(const Devices& devices, int64_t limit) {
  for (const auto& device : devices.blocks) {
    device->set_limit(limit);
    limit_gpu(device->torch_device(), limit);
  }
}

/// Blocks on "cpu" are computed there: the host is then one more device, behind the others.
void place_on_host(Placement& placement, const RehearsalOptions& devices) {
  const auto driven = static_cast<int>(devices.device_names.size());
  placement.num_devices = driven;
  for (int& device : placement.device_of_block) {
    if (device < 0) device = devices.host_is_device() ? 0 : driven;
    placement.num_devices = std::max(placement.num_devices, device + 1);
  }
}

std::string name_of_device(const Job& job, const PlacementOptions& wanted, int index) {
  if (wanted.virtual_devices > 0) return fmt::format("virtual:{}", index);
  return job.on_cpu() ? "cpu" : job.gpus().at(static_cast<size_t>(index));
}

/// Blocks as a map has them, and slices of what may move as levelling has them.
Placement placed(const std::vector<BlockCost>& costs, const AutoMap& map, const PlanOptions& options,
                 const RehearsalOptions& devices) {
  Placement placement = options.placement;
  placement.device_of_block = map.devices;
  bool shared = false;
  for (size_t b = 0; b < costs.size() && !map.slices.empty(); ++b) {
    placement.optimizer_shares.push_back(shares_of(map.slices[b], costs[b], map.devices[b]));
    shared = shared || !placement.optimizer_shares.back().empty();
  }
  if (!shared) placement.optimizer_shares.clear();
  place_on_host(placement, devices);
  return placement;
}

/// What a rehearsal of the map needs beyond what blocks were allowed: it is said, since costs are a little less exact.
std::vector<std::string> over_limits(const MemoryForecast& forecast, const std::vector<DeviceLimit>& limits,
                                     const PlacementOptions& wanted) {
  std::vector<std::string> notices;
  for (const auto& limit : limits) {
    if (limit.device < 0 || limit.bytes == kNoLimit) continue;
    const DeviceForecast& device = forecast.devices.at(static_cast<size_t>(limit.device));
    if (device.peak() <= limit.bytes) continue;
    notices.push_back(
        fmt::format("--max_memory gives {} {}, and its blocks need {} at their peak (--device_map {}): a "
                    "smaller value, or --memory_limit, keeps to it",
                    device.name, format_bytes(limit.bytes), format_bytes(device.peak()), wanted.device_map));
  }
  return notices;
}

struct DevicePeak {
  std::string name;
  int64_t bytes = 0;
};

std::vector<DevicePeak> peaks_of(const MemoryForecast& forecast) {
  std::vector<DevicePeak> out;
  for (const auto& device : forecast.devices) out.push_back({device.name, device.peak()});
  return out;
}

std::vector<DevicePeak> peaks_of(const std::vector<DeviceLoad>& loads, const RehearsalOptions& devices) {
  std::vector<DevicePeak> out;
  for (const auto& load : loads) {
    if (load.device >= 0) out.push_back({devices.device_names.at(static_cast<size_t>(load.device)), load.peak()});
  }
  return out;
}

/// Whole blocks are few and large, and where nothing is trained nothing can be moved between devices, and with adapters
/// little: how even that lets them be, and what would be more even.
std::vector<std::string> uneven(const std::vector<DevicePeak>& peaks, const std::vector<BlockCost>& costs,
                                int micro_batches) {
  if (peaks.size() < 2) return {};
  const auto [least, most] = std::ranges::minmax_element(peaks, {}, &DevicePeak::bytes);
  const double ratio = static_cast<double>(most->bytes) / static_cast<double>(std::max<int64_t>(1, least->bytes));
  if (ratio <= kEven) return {};
  const auto count = static_cast<int>(peaks.size());
  const auto& widest =
      *std::ranges::max_element(costs, {}, [](const BlockCost& cost) { return cost.state + cost.saved; });
  std::string text = fmt::format(
      "--device_map: {} needs {} and {} {}, {:.3f} to 1: blocks are placed whole ({} needs {}), and by what they cost "
      "alone no split of them over {} devices is below {:.3f} to 1",
      most->name, format_bytes(most->bytes), least->name, format_bytes(least->bytes), ratio, widest.block,
      format_bytes(widest.state + widest.saved), count, std::min(ratio, most_even_ratio(costs, count, micro_batches)));
  for (int fewer = count - 1; fewer > 1; --fewer) {
    const double there = most_even_ratio(costs, fewer, micro_batches);
    if (there > kEven) continue;
    text += fmt::format("; over {} devices one is {:.3f} to 1", fewer, there);
    break;
  }
  return {text};
}

/// Costs add up to what a device needs but for what blocks on it do to each other: what a rehearsal of the map differs by
/// is charged to a block of each device.
void charge_difference(std::vector<BlockCost>& costs, const AutoMap& map, const MemoryForecast& forecast) {
  for (const auto& load : map.loads) {
    const auto first = std::find(map.devices.begin(), map.devices.end(), load.device);
    if (load.device < 0 || first == map.devices.end()) continue;
    const int64_t found = forecast.devices[static_cast<size_t>(load.device)].peak();
    costs[static_cast<size_t>(first - map.devices.begin())].state += found - load.peak();
  }
}

/// The map is rehearsed, and in training what may move is levelled once more by what that has found.
ChosenPlacement made_map(const RehearsalOptions& devices, const PlacementOptions& wanted, const Model& model,
                         const PlanOptions& options, const RowsOfStep& rows) {
  auto costs = block_costs(model, options, rows, devices);
  const bool moves = options.training && !options.placement.offload_optimizer;
  const int micro_batches = options.training ? static_cast<int>(rows.size()) : 1;
  const auto limits = limits_of(devices, wanted);
  AutoMap map = make_auto_map(costs, limits,
                              {.kind = map_kind(wanted.device_map), .micro_batches = micro_batches, .level = moves});
  PlanOptions tried = options;
  tried.placement = placed(costs, map, options, devices);
  MemoryForecast forecast = rehearse(model, make_plan(model, tried), rows, devices);
  const bool balanced = map_kind(wanted.device_map) == MapKind::kBalanced && wanted.max_memory.empty();
  if (!moves || !balanced) {
    if (options.training) return {std::move(tried.placement), over_limits(forecast, limits, wanted), {}};
    auto notices = over_limits(forecast, limits, wanted);
    if (balanced) std::ranges::move(uneven(peaks_of(forecast), costs, micro_batches), std::back_inserter(notices));
    return {std::move(tried.placement), std::move(notices), std::move(forecast)};
  }
  charge_difference(costs, map, forecast);
  map.slices = level_movable(costs, map.devices, limits, {.micro_batches = micro_batches});
  const auto loads = device_loads(costs, map.devices, limits, micro_batches, map.slices);
  return {placed(costs, map, options, devices), uneven(peaks_of(loads, devices), costs, micro_batches), {}};
}

}  // namespace

ChosenPlacement choose_placement(const RehearsalOptions& devices, const PlacementOptions& wanted, const Model& model,
                                 const PlanOptions& options, const RowsOfStep& rows) {
  const auto count = static_cast<int>(devices.device_names.size());
  PlanOptions with = options;
  with.placement.offload_optimizer = wanted.offload_optimizer && options.training;
  with.placement.offload_params = wanted.offload_params;
  std::vector<std::string> notices;
  const bool in_vain = devices.host_is_device() && (with.placement.offload_optimizer || with.placement.offload_params);
  if (in_vain && wanted.offload_if_apart) {
    with.placement.offload_optimizer = with.placement.offload_params = false;
    notices.emplace_back("nothing is offloaded: the device is the CPU, and host memory is its own");
  } else if (in_vain) {
    throw usage_error("offloading to host memory (--offload, --deepspeed): the device is the CPU, whose memory that is",
                      "it is for GPUs; --virtual_devices 1 tries it without one");
  }
  if (is_map_word(wanted.device_map)) return made_map(devices, wanted, model, with, rows);
  ChosenPlacement chosen{.placement = with.placement, .notices = std::move(notices), .forecast = {}};
  if (wanted.device_map.empty()) {
    if (count > 1) {
      throw usage_error(
          fmt::format("--virtual_devices {} and no --device_map: nothing would stand on {} of them", count, count - 1),
          "--device_map auto");
    }
  } else {
    DeviceMap map = read_device_map(model, wanted.device_map, count);
    chosen.placement.device_of_block = std::move(map.devices);
    std::ranges::move(map.notices, std::back_inserter(chosen.notices));
  }
  place_on_host(chosen.placement, devices);
  return chosen;
}

RehearsalOptions devices_for_rehearsal(const Job& job, const PlacementOptions& wanted, int64_t loss_chunk) {
  const std::string backend = job.comm.data ? job.comm.data->backend_name() : "solo";
  RehearsalOptions out{.on_cpu = job.on_cpu(),
                       .virtual_devices = wanted.virtual_devices > 0,
                       .transport = backend == "gloo" || backend == "nccl" ? backend : "shm",
                       .loss_chunk = loss_chunk,
                       .alike = true,
                       .context_bytes = job.on_cpu() ? 0 : kGpuContextBytes};
  for (int i = 0; i < job.num_devices; ++i) {
    out.device_names.push_back(name_of_device(job, wanted, i));
    out.capacities.push_back(wanted.limited() ? wanted.memory_limit : 0);
  }
  return out;
}

PlacementOptions limits_of_tensors(const Job& job, PlacementOptions wanted) {
  if (!wanted.limited() || !job.on_cpu() || wanted.virtual_devices > 0) return wanted;
  const int64_t own = settled_bytes();
  if (wanted.memory_limit <= own) {
    throw UserError(
        ExitCode::kMemory,
        fmt::format("--memory_limit {}: the process holds {} before there is a weight (libraries, the model's "
                    "files, the rows' index)",
                    format_bytes(wanted.memory_limit), format_bytes(own)),
        "a larger one; --virtual_devices 1 limits tensors alone");
  }
  wanted.memory_limit -= own;
  return wanted;
}

bool may_share_weights(const Job& job, const RunOptions& run, const PlanOptions& options) {
  const bool sharded = options.zero.shards_params() && options.world > 1;
  return run.shared_weights && sharded && job.world.num_nodes == 1 && job.on_cpu() && job.num_devices == 1 &&
         !run.placement.offload_params;
}

Devices make_devices(const Job& job, const PlacementOptions& wanted, const Plan& plan) {
  const int planned = plan.options.placement.num_devices;
  Devices devices;
  if (wanted.virtual_devices > 0) {
    devices = Devices::virtual_ones(job.num_devices, wanted.memory_limit);
  } else {
    devices = Devices::one(job.device);
    for (int i = 1; i < job.num_devices; ++i) {
      devices.blocks.push_back(Devices::one(name_of_device(job, wanted, i)).blocks.front());
    }
    if (job.on_cpu()) devices.host->set_limit(wanted.memory_limit);
    if (!job.on_cpu() && wanted.limited()) limit_gpus(devices, wanted.memory_limit);
  }
  if (planned > job.num_devices) devices.blocks.push_back(devices.host);  // blocks that are computed there
  return devices;
}

}  // namespace lockstep
