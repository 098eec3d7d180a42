// Sizes, times and shapes as people read them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::string format_bytes(int64_t bytes);                   // "1.50 GiB", "640 B"
std::string format_duration(double seconds);               // "1h 2m 3s", "850ms"
std::string format_count(int64_t count);                   // "31.5M", "960"
std::string format_shape(std::span<const int64_t> shape);  // "[2, 58, 64]"
std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
bool starts_with_any(std::string_view text, std::span<const std::string> prefixes);

}  // namespace lockstep
