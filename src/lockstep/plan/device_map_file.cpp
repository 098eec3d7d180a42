#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/plan/flag_json.h"
#include "lockstep/plan/max_memory.h"  // parse_device

namespace lockstep {
namespace {

int device_of(const Json& value, int num_devices, const std::string& where) {
  if (value.is_string()) return parse_device(value.get<std::string>(), num_devices, where);
  if (value.is_number_integer()) return parse_device(value.dump(), num_devices, where);
  throw usage_error(fmt::format("{}: expected a device, found {}", where, value.dump()),
                    "a device is written 1, \"cuda:1\", \"virtual:1\" or \"cpu\"");
}

}  // namespace

DeviceMap read_device_map(const Model& model, const std::string& text_or_path, int num_devices) {
  const std::string where = where_of_flag("--device_map", text_or_path);
  const Json json = object_of_flag("--device_map", text_or_path, R"({"model": 0, "lm_head": 1})");
  std::vector<DeviceEntry> entries;
  for (const auto& [name, value] : json.items()) {
    entries.push_back({name, device_of(value, num_devices, fmt::format("{}: \"{}\"", where, name))});
  }
  return resolve_device_map(model, entries, where);
}

}  // namespace lockstep
