// What memory a rank needs or has needed, as plain values: predicted in plan/, counted in tensor/, told and drawn by
// watch/. One form for both, so that they stand beside each other; also as JSON (plan.json, memory.json).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

/// Uses ("parameters", "activations", …) in the order in which tables show them; those without a byte are left out.
using BytesOfUses = std::vector<std::pair<std::string, int64_t>>;

/// The most that one phase ("forward") needed at once.
struct PhaseMemory {
  std::string phase;
  int64_t bytes = 0;
  BytesOfUses by_use;  // at that moment
  std::string at;      // the block that was running
};

struct DeviceAccount {
  std::string name;
  int64_t capacity = 0;  // bytes it has; 0: not known
  int64_t alive = 0;     // when the account was drawn up
  BytesOfUses alive_by_use;
  int64_t held = 0;  // the most that the process held for them: freed blocks that wait for the next taker too
  std::vector<PhaseMemory> phases;  // those that were there, in their order

  const PhaseMemory* find(std::string_view phase) const;  // nullptr: it was not there
  const PhaseMemory* peak() const;                        // of the phase that needed most; nullptr: of none
  int64_t peak_bytes() const;
  bool fits() const { return capacity == 0 || peak_bytes() <= capacity; }
  void raise_to(const std::vector<PhaseMemory>& later);  // per phase the higher of the two
};

/// Of one rank.
struct MemoryAccount {
  std::vector<DeviceAccount> devices;  // those that blocks stand on
  std::optional<DeviceAccount> host;   // where it is none of them
  int64_t context_bytes = 0;           // of each device, beside what is counted: the runtime of a GPU
  int64_t waiting_bytes = 0;           // in the host's memory, beside what is counted: rows that are ready and wait
  int64_t process_bytes = 0;           // there, where the host is the device: what no tensor holds
  std::string batch;                   // what was forecast, or the largest that came, in words

  bool empty() const { return devices.empty(); }
  int64_t highest_peak() const;                          // of the devices
  std::vector<const DeviceAccount*> everything() const;  // devices, then the host
};

/// What one rank has measured.
struct RankMemory {
  MemoryAccount since_start, since_last;  // peaks since the run began, and since it was last measured
  bool own_memory = false;                // devices are GPUs: theirs is not this process's resident memory
  int64_t idle_bytes = 0;                 // resident before there was a weight, and pages of libraries
  int64_t resident_bytes = 0, resident_peak_bytes = 0;
  int64_t uncounted_bytes = 0;  // resident, neither of files nor of tensors (at the most there were)
  int64_t available_bytes = 0;  // this rank's share of what the machine can still give; 0: not known

  /// In one number: of the GPU that needed most, else of the process (resident).
  int64_t peak_bytes() const;
  /// The same as it was predicted; 0 where it was not.
  int64_t predicted_bytes(const MemoryAccount& predicted) const;
};

Json as_json(const DeviceAccount& device);
Json as_json(const MemoryAccount& account);
Json as_json(const RankMemory& rank);

/// Keys that are not there, and what is no object, read as empty.
MemoryAccount memory_account_from(const Json& value);
RankMemory rank_memory_from(const Json& value);

}  // namespace lockstep
