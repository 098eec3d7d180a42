// `--max_memory`: how much of each device blocks may take.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/plan/device_load.h"

namespace lockstep {

/// "10GiB", "500 MB", "1.5GiB", "1024": binary with an i, else decimal; letters in any case. Throws UserError(kUsage)
/// naming `flag`.
int64_t parse_bytes(std::string_view text, std::string_view flag);

/// "0:10GiB,1:20GiB,cpu:64GiB"; Accelerate's form {"0": "10GiB", "cpu": "64GiB"}, as text or as a file; or "10GiB" for
/// each of `num_devices`. Devices in the order of their index, the CPU last; one that is not named is not used. Throws
/// UserError(kUsage): a device that is not there or named twice, a size that is none.
std::vector<DeviceLimit> parse_max_memory(const std::string& text, int num_devices);

/// A device as people write it: 1, "1", "cuda:1", "virtual:1" or "cpu". Throws UserError(kUsage) that begins with
/// `where` when it is none of these or not below `num_devices`.
int parse_device(std::string_view text, int num_devices, const std::string& where);

}  // namespace lockstep
