#include "lockstep/plan/zero.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"

namespace lockstep {
namespace {

// What a DeepSpeed file may ask for that would change where things live; a requested thing is never dropped in silence.
void refuse_offload(const Json& zero, const std::string& where) {
  for (const char* key : {"offload_optimizer", "offload_param"}) {
    if (!zero.contains(key)) continue;
    const auto device = zero.at(key).value("device", "none");
    if (device != "none") {
      throw usage_error(
          fmt::format("{}: zero_optimization.{}.device: expected \"none\", found \"{}\"", where, key, device),
          "this build does not offload; use more ranks, zero3, or a smaller batch");
    }
  }
}

ZeroStage from_json(const Json& config, const std::string& where) {
  if (!config.is_object()) throw usage_error(fmt::format("{}: expected a JSON object", where));
  const Json zero = config.value("zero_optimization", Json::object());
  refuse_offload(zero, where);
  const Json stage = zero.value("stage", Json(0));
  if (!stage.is_number() || stage.get<double>() < 0 || stage.get<double>() > 3) {
    throw usage_error(fmt::format("{}: zero_optimization.stage: expected 0, 1, 2 or 3, found {}", where, stage.dump()));
  }
  return {stage.get<int>()};
}

}  // namespace

ZeroStage ZeroStage::from_flag(const std::string& flag) {
  for (int stage = 0; stage <= 3; ++stage) {
    if (flag == std::to_string(stage) || flag == "zero" + std::to_string(stage)) return {stage};
  }
  try {
    if (flag.starts_with("{")) return from_json(parse_json(flag, "--deepspeed"), "--deepspeed");
    if (std::filesystem::is_regular_file(flag)) return from_json(read_json(flag), flag);
  } catch (const Error& e) {
    if (e.code() == ExitCode::kUsage) throw;
    throw usage_error(e.message(), e.hint());
  }
  if (flag.ends_with("_offload")) {
    throw usage_error(fmt::format("--deepspeed {}: this build does not offload", flag),
                      "use " + flag.substr(0, flag.size() - 8) + ", more ranks, or a smaller batch");
  }
  throw usage_error(
      fmt::format("--deepspeed \"{}\": expected zero0, zero1, zero2, zero3 or a DeepSpeed JSON file", flag));
}

}  // namespace lockstep
