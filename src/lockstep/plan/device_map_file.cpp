#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/plan/device_map.h"
#include "lockstep/plan/max_memory.h"  // parse_device

namespace lockstep {
namespace {

/// A parser keeps the last of two members of one name in silence.
void refuse_duplicates(const std::string& text, const std::string& where) {
  std::set<std::string> seen;
  std::string twice;
  std::ignore = Json::parse(text, [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(value.get<std::string>()).second) {
      twice = value.get<std::string>();
    }
    return true;
  });
  if (twice.empty()) return;
  throw usage_error(fmt::format("{}: \"{}\" stands there twice", where, twice), "keep one of the two lines");
}

int device_of(const Json& value, int num_devices, const std::string& where) {
  if (value.is_string()) return parse_device(value.get<std::string>(), num_devices, where);
  if (value.is_number_integer()) return parse_device(value.dump(), num_devices, where);
  throw usage_error(fmt::format("{}: expected a device, found {}", where, value.dump()),
                    "a device is written 1, \"cuda:1\", \"virtual:1\" or \"cpu\"");
}

}  // namespace

DeviceMap read_device_map(const Model& model, const std::string& text_or_path, int num_devices) {
  const bool is_text = text_or_path.starts_with("{");
  const std::string where = is_text ? "--device_map" : text_or_path;
  const std::string text = is_text ? text_or_path : read_text(text_or_path);
  const Json json = parse_json(text, where);
  if (!json.is_object()) {
    throw usage_error(where + ": expected an object of names and devices", R"(for example {"model": 0, "lm_head": 1})");
  }
  refuse_duplicates(text, where);
  std::vector<DeviceEntry> entries;
  for (const auto& [name, value] : json.items()) {
    entries.push_back({name, device_of(value, num_devices, fmt::format("{}: \"{}\"", where, name))});
  }
  return resolve_device_map(model, entries, where);
}

std::string device_map_json(const Model& model, const std::vector<int>& devices) {
  check(devices.size() == model.blocks.size(), "a device for every block");
  Json json = Json::object();
  for (size_t i = 0; i < devices.size(); ++i) {
    if (model.blocks[i]->params().empty()) continue;
    if (devices[i] == kCpuDevice) {
      json[model.blocks[i]->name()] = "cpu";
    } else {
      json[model.blocks[i]->name()] = devices[i];
    }
  }
  return json.dump(1);
}

}  // namespace lockstep
