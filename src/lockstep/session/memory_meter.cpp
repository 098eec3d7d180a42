#include "lockstep/session/memory_meter.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/machine.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/plan/memory_forecast.h"
#include "lockstep/tensor/gpus.h"

namespace lockstep {
namespace {

bool is_gpu(const DeviceMemory& device) { return gpu_of(device.torch_device()).has_value(); }

/// The devices stand for themselves, but for a host that is none of them.
MemoryAccount account_of_rank(std::vector<DeviceAccount> all, size_t num_devices, const std::string& batch) {
  MemoryAccount out;
  out.batch = batch;
  if (all.size() > num_devices) out.host = std::move(all.back());
  all.resize(num_devices);
  out.devices = std::move(all);
  return out;
}

}  // namespace

MemoryMeter::MemoryMeter(Job& job, const Devices& devices, int64_t idle_bytes, MemoryAccount predicted,
                         SharedBytes shared)
    : job_(job), devices_(devices), idle_bytes_(idle_bytes), predicted_(std::move(predicted)), shared_(shared) {
  const std::string load(memory_phase_name(MemoryPhase::kLoad));
  for (const auto& device : everything()) {
    since_start_.push_back(account(*device));
    std::erase_if(since_start_.back().phases, [&](const auto& p) { return p.phase != load; });
  }
  begin_anew();
}

std::vector<std::shared_ptr<DeviceMemory>> MemoryMeter::everything() const {
  auto all = devices_.blocks;
  if (std::ranges::find(all, devices_.host) == all.end()) all.push_back(devices_.host);
  return all;
}

DeviceAccount MemoryMeter::account(const DeviceMemory& device) const {
  const int64_t limit = device.limit() == DeviceMemory::kNoLimit ? 0 : device.limit();
  MemoryFigures figures = device.figures();
  if (!is_gpu(device)) return account_of(device.name(), limit, figures);
  // LibTorch keeps freed blocks of a GPU, and gives them back where another size needs the room.
  const GpuMemory memory = gpu_memory(device.torch_device());
  figures.most_held = memory.peak_reserved_bytes;
  return account_of(device.name(), limit > 0 ? limit : memory.total_bytes, figures);
}

void MemoryMeter::begin_anew() {
  for (const auto& device : everything()) {
    device->reset_peaks();
    if (is_gpu(*device)) reset_gpu_peak(device->torch_device());
  }
}

RankMemory MemoryMeter::of_this_rank(const std::string& largest_batch) {
  const ProcessMemory process = read_memory();
  // The kernel tells each process all that it sees of shared memory.
  const int64_t of_others = std::max<int64_t>(0, std::min(process.shared_bytes, shared_.all) - shared_.of_this_rank);
  RankMemory out{.own_memory = on_gpu(),
                 .resident_bytes = process.resident_bytes - of_others,
                 .resident_peak_bytes = process.peak_bytes - of_others,
                 .uncounted_bytes = process.anonymous_bytes + shared_.of_this_rank,
                 .available_bytes = machine_memory().available_bytes / std::max(1, job_.world.local_size)};
  const auto all = everything();
  std::vector<DeviceAccount> recent;
  int64_t counted = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    recent.push_back(account(*all[i]));
    since_start_[i].raise_to(recent[i].phases);
    since_start_[i].alive = recent[i].alive;
    since_start_[i].alive_by_use = recent[i].alive_by_use;
    since_start_[i].held = std::max(since_start_[i].held, recent[i].held);
    if (!is_gpu(*all[i])) counted += since_start_[i].peak_bytes();
  }
  out.uncounted_bytes -= counted;
  // Pages of libraries come when they are first used, and go when the kernel needs them: those of now are idle too.
  out.idle_bytes = idle_bytes_ + process.file_bytes;
  out.since_start = account_of_rank(since_start_, devices_.blocks.size(), largest_batch);
  out.since_last = account_of_rank(std::move(recent), devices_.blocks.size(), largest_batch);
  begin_anew();
  return out;
}

MemoryMeasured MemoryMeter::measure(const std::string& largest_batch) {
  const auto all = job_.control().all_gather_bytes(as_json(of_this_rank(largest_batch)).dump(), "memory of ranks");
  MemoryMeasured out{.predicted = predicted_, .ranks = {}};
  if (!job_.reports()) return out;
  for (const auto& text : all) out.ranks.push_back(rank_memory_from(parse_json(text, "memory of a rank")));
  return out;
}

}  // namespace lockstep
