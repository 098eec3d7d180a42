#include "lockstep/plan/max_memory.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/flag_json.h"

namespace lockstep {
namespace {

const std::string kFlag = "--max_memory";

constexpr std::array<std::pair<std::string_view, double>, 9> kUnits{{{"", 1.0},
                                                                     {"b", 1.0},
                                                                     {"kb", 1e3},
                                                                     {"mb", 1e6},
                                                                     {"gb", 1e9},
                                                                     {"tb", 1e12},
                                                                     {"kib", 1024.0},
                                                                     {"mib", 1024.0 * 1024},
                                                                     {"gib", 1024.0 * 1024 * 1024}}};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// (device, size) as they stand in the text.
std::vector<std::pair<std::string, std::string>> entries_of(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> entries;
  if (is_inline_object(text) || text.ends_with(".json")) {
    const Json json = object_of_flag(kFlag, text, R"({"0": "10GiB", "cpu": "64GiB"})");
    for (const auto& [device, size] : json.items()) {
      entries.emplace_back(device, size.is_string() ? size.get<std::string>() : size.dump());
    }
    return entries;
  }
  for (const auto& part : split(text, ',')) {
    const size_t colon = part.rfind(':');
    if (colon == std::string::npos) {
      throw usage_error(fmt::format("{}: expected DEVICE:SIZE, found \"{}\"", kFlag, part),
                        "for example 0:10GiB,1:20GiB,cpu:64GiB, or 10GiB for every device");
    }
    entries.emplace_back(part.substr(0, colon), part.substr(colon + 1));
  }
  return entries;
}

}  // namespace

int64_t parse_bytes(std::string_view text, std::string_view flag) {
  const std::string_view word = trimmed(text);
  double number = 0;
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
  std::string unit(trimmed(word.substr(static_cast<size_t>(end - word.data()))));
  std::ranges::transform(unit, unit.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto known = std::ranges::find(kUnits, unit, &std::pair<std::string_view, double>::first);
  const double bytes = known == kUnits.end() ? -1 : number * known->second;
  if (failure == std::errc() && bytes >= 0 && bytes < 9e18) return static_cast<int64_t>(std::llround(bytes));
  throw usage_error(fmt::format("{}: expected a size, found \"{}\"", flag, text), "for example 10GiB, 500MB or 1.5GiB");
}

int parse_device(std::string_view text, int num_devices, const std::string& where) {
  if (text == "cpu") return kCpuDevice;
  std::string_view digits = text;
  for (const std::string_view kind : {"cuda:", "virtual:"}) {
    if (digits.starts_with(kind)) digits.remove_prefix(kind.size());
  }
  int device = -1;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), device);
  if (failure != std::errc() || end != digits.data() + digits.size() || device < 0) {
    throw usage_error(fmt::format("{}: expected a device, found \"{}\"", where, text),
                      text == "disk" ? "weights are not kept on disk here; use cpu"
                                     : "a device is written 1, \"cuda:1\", \"virtual:1\" or \"cpu\"");
  }
  if (device < num_devices) return device;
  throw usage_error(fmt::format("{}: device {} is not there: this rank has {} {}", where, device, num_devices,
                                num_devices == 1 ? "device, 0" : fmt::format("devices, 0 to {}", num_devices - 1)),
                    "without GPUs, --virtual_devices N makes N of them");
}

std::vector<DeviceLimit> parse_max_memory(const std::string& text, int num_devices) {
  std::vector<DeviceLimit> limits;
  if (!text.empty() && text.find_first_of(":{") == std::string::npos && !text.ends_with(".json")) {
    const int64_t bytes = parse_bytes(text, kFlag);
    for (int device = 0; device < num_devices; ++device) limits.push_back({device, bytes});
    return limits;
  }
  for (const auto& [device, size] : entries_of(text)) {
    limits.push_back({parse_device(trimmed(device), num_devices, kFlag), parse_bytes(size, kFlag)});
  }
  std::ranges::sort(limits, {}, [](const auto& limit) {
    return std::pair(limit.device == kCpuDevice, limit.device);  // the CPU last
  });
  const auto twice = std::ranges::adjacent_find(limits, {}, &DeviceLimit::device);
  if (twice == limits.end()) return limits;
  throw usage_error(fmt::format("{}: device {} is named twice", kFlag, device_name(twice->device)));
}

}  // namespace lockstep
