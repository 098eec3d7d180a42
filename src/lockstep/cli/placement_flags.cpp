#include "lockstep/cli/placement_flags.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/flag_json.h"
#include "lockstep/plan/max_memory.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep {
namespace {

/// A word with a slip in it is not a file that is missing.
void check_device_map(const std::string& value) {
  std::error_code failure;
  const bool is_file = value.ends_with(".json") || std::filesystem::exists(value, failure);
  if (!value.empty() && !is_inline_object(value) && !is_file) map_kind(value);
}

}  // namespace

void add_placement_flags(CLI::App& app, PlacementFlags& flags) {
  const std::string group = "Devices and memory";
  app.add_option("--device_map", flags.device_map,
                 "blocks over the devices that a rank drives: a JSON file {\"model.layers.0\": 0, …} as Accelerate "
                 "writes it, or auto | balanced | balanced_low_0 | sequential")
      ->group(group);
  app.add_option("--max_memory", flags.max_memory,
                 "what blocks may take of each device: 0:10GiB,1:20GiB,cpu:64GiB, or 10GiB for each")
      ->group(group);
  app.add_option("--virtual_devices", flags.virtual_devices,
                 "parts of the host's memory as devices, each with a limit and counters of its own: to try device maps "
                 "and offloading without a GPU")
      ->check(CLI::Range(0, 64))
      ->group(group);
  app.add_option("--offload", flags.offload,
                 "optimizer, params: masters and AdamW's moments, or weights, stay in host memory; weights come to the "
                 "device a block ahead")
      ->delimiter(',')
      ->group(group);
  app.add_option("--memory_limit", flags.memory_limit,
                 "of each device, for one rank: 10GiB. A batch that would need more is split, a job that cannot fit is "
                 "refused with a table")
      ->group(group);
  app.add_flag("--debug_sync", flags.debug_sync,
               "wait for the device after every block, so that its errors show at the block that made them (slow)")
      ->group(group);
  app.add_option("--device_log", flags.device_log,
                 "file for every tensor that crosses from device to device: name, bytes, from, to, time (one JSON "
                 "object a line; .rank-N is added for several ranks)")
      ->group(group);
}

bool PlacementFlags::offloads(const std::string& what) const {
  return std::find(offload.begin(), offload.end(), what) != offload.end();
}

int64_t PlacementFlags::limit() const {
  return memory_limit.empty() ? DeviceMemory::kNoLimit : parse_bytes(memory_limit, "--memory_limit");
}

void PlacementFlags::check() const {
  for (const auto& word : offload) {
    if (word == "optimizer" || word == "params" || word == "none") continue;
    const std::string near = nearest_name(word, {"optimizer", "params", "none"});
    throw usage_error(fmt::format("--offload {}: expected optimizer, params or none", word),
                      near.empty() ? "--offload optimizer" : "did you mean " + near + "?");
  }
  if (offloads("none") && offload.size() > 1) throw usage_error("--offload: none, and something besides");
  check_device_map(device_map);
  if (!max_memory.empty() && !is_map_word(device_map)) {
    throw usage_error("--max_memory is for maps that are made, and --device_map names none",
                      "--device_map auto, or leave --max_memory out; --memory_limit limits any job");
  }
  if (limit() <= 0) {
    throw usage_error(fmt::format("--memory_limit {}: expected more than 0 bytes", memory_limit),
                      "for example --memory_limit 10GiB, or leave it out");
  }
}

}  // namespace lockstep
