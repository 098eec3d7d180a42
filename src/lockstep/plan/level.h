// Levelling: masters and optimizer state may stand on another device than their block, so that every device holds as
// much as every other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/plan/device_load.h"

namespace lockstep {

/// Slices begin and end at multiples of this many movable bytes: whole cache lines of elements, whether an element is
/// 12 bytes (a master and two moments in float32) or 8 (its weight is its own master).
inline constexpr int64_t kPieceBytes = int64_t{64} * 24;

struct LevelOptions {
  int micro_batches = 1;
  int64_t quantum = kPieceBytes;
};

/// For each block the slices of its movable bytes, in order of the bytes; together they are all of them. The bytes are
/// poured over the devices of `limits` like water over a floor of what is fixed there: peaks become equal in bytes, or
/// in parts of the limit where limits differ, and none rises above the highest there was. A device that holds too much
/// gives its largest blocks whole as long as they are not too much, then part of one; so that n devices cut at most
/// n - 1 times. What stands on a device outside `limits` stays there. Deterministic.
std::vector<std::vector<StateSlice>> level_movable(std::span<const BlockCost> costs, std::span<const int> devices,
                                                   std::span<const DeviceLimit> limits, const LevelOptions& options);

/// What peaks are compared by: the limit of each device, or 1 for all when any has none.
std::vector<double> capacities_of(std::span<const DeviceLimit> limits);

}  // namespace lockstep
