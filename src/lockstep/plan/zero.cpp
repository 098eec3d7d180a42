#include "lockstep/plan/zero.h"

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/plan/deepspeed_file.h"
#include "lockstep/plan/flag_json.h"

namespace lockstep {

DeepSpeedChoice DeepSpeedChoice::from_flag(const std::string& flag) {
  for (int stage = 0; stage <= 3; ++stage) {
    if (flag == std::to_string(stage) || flag == "zero" + std::to_string(stage)) return {.zero = {stage}};
  }
  if (flag == "zero2_offload") return {.zero = {2}, .offload_optimizer = true};
  if (flag == "zero3_offload") return {.zero = {3}, .offload_optimizer = true, .offload_params = true};
  if (is_inline_object(flag) || std::filesystem::is_regular_file(flag)) {
    return read_deepspeed_file(object_of_flag("--deepspeed", flag, R"({"zero_optimization": {"stage": 3}})"),
                               where_of_flag("--deepspeed", flag));
  }
  throw usage_error(fmt::format(
      "--deepspeed \"{}\": expected zero0, zero1, zero2, zero3, zero2_offload, zero3_offload or a DeepSpeed "
      "JSON file",
      flag));
}

ZeroStage ZeroStage::from_flag(const std::string& flag) { return DeepSpeedChoice::from_flag(flag).zero; }

}  // namespace lockstep
