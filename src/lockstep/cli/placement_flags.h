// Flags that say where blocks, weights and optimizer state stand, and how much memory they may take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct PlacementFlags {
  std::string device_map, max_memory, memory_limit, device_log;
  std::vector<std::string> offload;  // "optimizer", "params", "none"
  int virtual_devices = 0;
  bool debug_sync = false;

  bool offloads(const std::string& what) const;
  /// Bytes that one rank may take of each device; DeviceMemory::kNoLimit when nothing was said.
  int64_t limit() const;
  /// Throws UserError(kUsage).
  void check() const;
};
void add_placement_flags(CLI::App& app, PlacementFlags& flags);

}  // namespace lockstep
