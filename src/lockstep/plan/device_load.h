// What blocks that stand on devices need there: the one yardstick for maps that a person wrote and maps that were made.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "lockstep/plan/block_cost.h"

namespace lockstep {

inline constexpr int kCpuDevice = -1;
inline constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

/// A device that blocks may be placed on, and how many bytes it has for them.
struct DeviceLimit {
  int device = 0;  // kCpuDevice: the machine's own memory
  int64_t bytes = kNoLimit;
  bool operator==(const DeviceLimit&) const = default;
};

/// A range of a block's movable bytes and where it stands.
struct StateSlice {
  int device = 0;
  int64_t begin = 0, end = 0;
  bool operator==(const StateSlice&) const = default;
};

/// Bytes of one device when it holds most.
struct DeviceLoad {
  int device = 0;
  int64_t fixed = 0;    // of the blocks that it runs: state, saved, work, tied
  int64_t movable = 0;  // that stand there, of whichever blocks
  int64_t peak() const { return fixed + movable; }
  bool operator==(const DeviceLoad&) const = default;
};

/// The stage of each block: blocks that follow one another on one device are one stage. A map 0, 0, 1, 0 has three.
std::vector<int> stages_of(std::span<const int> devices);

/// One load for each of `limits`, in their order, and behind them one for each other device that the blocks use. Each
/// stage holds the micro-batches that the pipeline keeps in flight there (plan/pipeline.h; inference: give 1).
/// `slices`: as level_movable() gives them; empty: all movable bytes stand with their blocks.
std::vector<DeviceLoad> device_loads(std::span<const BlockCost> costs, std::span<const int> devices,
                                     std::span<const DeviceLimit> limits, int micro_batches,
                                     std::span<const std::vector<StateSlice>> slices = {});

/// Whether every device has what it needs.
bool fits(std::span<const DeviceLoad> loads, std::span<const DeviceLimit> limits);

/// For people: a line a device with what it needs and what it has.
std::string load_table(std::span<const DeviceLoad> loads, std::span<const DeviceLimit> limits);

/// "cuda:1"-like names need a kind; this is the index alone: "1" or "cpu".
std::string device_name(int device);

}  // namespace lockstep
