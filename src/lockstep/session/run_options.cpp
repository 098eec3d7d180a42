#include "lockstep/session/run_options.h"

#include <algorithm>
#include <cctype>
#include <system_error>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/auto_map.h"
#include "lockstep/plan/flag_json.h"

namespace lockstep {
namespace {

/// A word with a slip in it is not a file that is missing.
void check_device_map(const std::string& value) {
  std::error_code failure;
  const bool is_file = value.ends_with(".json") || std::filesystem::exists(value, failure);
  if (!value.empty() && !is_inline_object(value) && !is_file) map_kind(value);
}

}  // namespace

NamedAdapter NamedAdapter::from_flag(const std::string& text) {
  std::error_code failure;
  const size_t at = text.find('=');
  if (at == std::string::npos || std::filesystem::exists(text, failure)) return {"", text};
  const std::string name = text.substr(0, at);
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  if (name.empty() || !std::ranges::all_of(name, fits)) {
    throw usage_error(fmt::format("--adapters {}: expected a name of letters, digits, - _ and . before =", text),
                      "--adapters NAME=DIR");
  }
  return {name, text.substr(at + 1)};
}

void PlacementOptions::check() const {
  check_device_map(device_map);
  if (!max_memory.empty() && !is_map_word(device_map)) {
    throw usage_error("--max_memory is for maps that are made, and --device_map names none",
                      "--device_map auto, or leave --max_memory out; --memory_limit limits any job");
  }
  if (memory_limit <= 0) {
    throw usage_error(fmt::format("--memory_limit {}: expected more than 0 bytes", memory_limit),
                      "for example --memory_limit 10GiB, or leave it out");
  }
}

void RunOptions::require_one_adapter() const {
  if (adapters.size() < 2) return;
  throw usage_error(
      fmt::format("--adapters: expected one, found {}", adapters.size()),
      "only lockstep infer --val_dataset takes several, of which each row chooses one, and not with --speech "
      "or --merge_lora");
}

int64_t RunOptions::data_patience_s() const {
  constexpr int64_t kAfterRollCall = 10;
  return static_cast<int64_t>(judge.hard_seconds[static_cast<size_t>(Phase::kData)]) + kAfterRollCall;
}

}  // namespace lockstep
