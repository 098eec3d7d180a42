// Device maps that are made: `--device_map auto | balanced | balanced_low_0 | sequential`.
//
// Example:
//   const AutoMap map = make_auto_map(costs, limits, {.kind = MapKind::kBalanced, .micro_batches = 8});
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/device_load.h"

namespace lockstep {

enum class MapKind : uint8_t { kBalanced, kBalancedLow0, kSequential };

/// Whether a --device_map is one of the words (else it is a file).
bool is_map_word(std::string_view word);
/// "auto" is balanced. Throws UserError(kUsage) with the nearest word.
MapKind map_kind(std::string_view word);
std::string_view map_name(MapKind kind);

struct AutoMapOptions {
  MapKind kind = MapKind::kBalanced;
  int micro_batches = 1;  // of one optimizer step; 1 in inference
  bool level = true;      // masters and optimizer may stand away from their blocks
};

struct AutoMap {
  std::vector<int> devices;                     // of each block
  std::vector<std::vector<StateSlice>> slices;  // of each block's movable bytes
  std::vector<DeviceLoad> loads;                // of each limit, in their order
};

/// Most over least of the devices' peaks, up to which a map counts as even.
inline constexpr double kEven = 1.10;

/// Blocks go to devices in the order of `limits`, each device a contiguous range; the CPU, when it is among them,
/// comes last and takes as few blocks as it must.
///
/// balanced: the split whose largest peak (in parts of the limit, where limits differ) is least, then levelled. Where
/// levelling cannot lift all to one height because of what is fixed, the split whose largest fixed part is least is
/// taken when that ends lower. Every device takes at least a block; the smallest is left out when it does not fit
/// otherwise.
/// Where nothing (inference) or little (adapters) may move and that split is not even, one that is takes its place, if whole
/// blocks allow it; else the most even of those whose largest peak is at most 5 % above the least.
/// balanced_low_0: the same over the devices behind the first; the first takes the fewest blocks with which that fits,
/// and none when there is room: it stays free for what generation needs.
/// sequential: each device takes blocks up to its limit, then the next; nothing is levelled.
///
/// Throws UserError(kMemory) with what every device needs and has.
AutoMap make_auto_map(std::span<const BlockCost> costs, std::span<const DeviceLimit> limits,
                      const AutoMapOptions& options);

/// Most over least of the peaks that whole blocks allow at best on so many devices, what may be moved left with its block;
/// infinity: there are fewer blocks.
double most_even_ratio(std::span<const BlockCost> costs, int devices, int micro_batches);

}  // namespace lockstep
