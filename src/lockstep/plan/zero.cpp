#include "lockstep/plan/zero.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

/// Whether a DeepSpeed file wants `key` ("offload_optimizer", "offload_param") in host memory.
bool offloads(const Json& zero, const char* key, const std::string& where) {
  if (!zero.contains(key)) return false;
  const auto device = zero.at(key).value("device", "none");
  if (device == "none" || device == "cpu") return device == "cpu";
  throw usage_error(
      fmt::format("{}: zero_optimization.{}.device: expected \"none\" or \"cpu\", found \"{}\"", where, key, device),
      "nothing is offloaded to files here; cpu keeps it in host memory");
}

DeepSpeedChoice from_json(const Json& config, const std::string& where) {
  if (!config.is_object()) throw usage_error(fmt::format("{}: expected a JSON object", where));
  const Json zero = config.value("zero_optimization", Json::object());
  const Json stage = zero.value("stage", Json(0));
  if (!stage.is_number() || stage.get<double>() < 0 || stage.get<double>() > 3) {
    throw usage_error(fmt::format("{}: zero_optimization.stage: expected 0, 1, 2 or 3, found {}", where, stage.dump()));
  }
  return {.zero = {stage.get<int>()},
          .offload_optimizer = offloads(zero, "offload_optimizer", where),
          .offload_params = offloads(zero, "offload_param", where)};
}

}  // namespace

DeepSpeedChoice DeepSpeedChoice::from_flag(const std::string& flag) {
  for (int stage = 0; stage <= 3; ++stage) {
    if (flag == std::to_string(stage) || flag == "zero" + std::to_string(stage)) return {.zero = {stage}};
  }
  if (flag == "zero2_offload") return {.zero = {2}, .offload_optimizer = true};
  if (flag == "zero3_offload") return {.zero = {3}, .offload_optimizer = true, .offload_params = true};
  try {
    if (flag.starts_with("{")) return from_json(parse_json(flag, "--deepspeed"), "--deepspeed");
    if (std::filesystem::is_regular_file(flag)) return from_json(read_json(flag), flag);
  } catch (const Error& e) {
    if (e.code() == ExitCode::kUsage) throw;
    throw usage_error(e.message(), e.hint());
  }
  throw usage_error(fmt::format(
      "--deepspeed \"{}\": expected zero0, zero1, zero2, zero3, zero2_offload, zero3_offload or a DeepSpeed "
      "JSON file",
      flag));
}

ZeroStage ZeroStage::from_flag(const std::string& flag) { return DeepSpeedChoice::from_flag(flag).zero; }

}  // namespace lockstep
