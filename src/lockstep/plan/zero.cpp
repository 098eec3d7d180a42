#include "lockstep/plan/zero.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/plan/flag_json.h"

namespace lockstep {
namespace {

/// What other keys say, and the flags that say it here.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kFlagOfKey{
    {{"train_batch_size", "--per_device_train_batch_size with --gradient_accumulation_steps"},
     {"train_micro_batch_size_per_gpu", "--per_device_train_batch_size"},
     {"gradient_accumulation_steps", "--gradient_accumulation_steps"},
     {"gradient_clipping", "--max_grad_norm"},
     {"bf16", "--torch_dtype bfloat16"},
     {"fp16", "--torch_dtype float16"},
     {"optimizer", "--learning_rate, --weight_decay or --adam_beta1"},
     {"scheduler", "--lr_scheduler_type"},
     {"activation_checkpointing", "--gradient_checkpointing"}}};

constexpr const char* kReduceKey = "communication_data_type";

/// "auto" leaves it to the flags, and what is off asks for nothing.
bool asks_for_something(const Json& value) {
  if (value.is_object() && value.contains("enabled")) return asks_for_something(value.at("enabled"));
  return !value.is_null() && value != Json("auto") && value != Json(false);
}

std::vector<std::string> ignored_keys(const Json& config) {
  std::vector<std::string> out;
  for (const auto& [key, value] : config.items()) {
    if (key == "zero_optimization" || key == kReduceKey || !asks_for_something(value)) continue;
    const auto* const known = std::ranges::find(kFlagOfKey, key, &decltype(kFlagOfKey)::value_type::first);
    out.push_back(known == kFlagOfKey.end() ? key : fmt::format("{} ({} says it)", key, known->second));
  }
  return out;
}

/// DeepSpeed's older key, which is true or false.
bool offloads_by_word(const Json& zero, const char* key, const std::string& where) {
  const Json value = zero.value(key, Json(false));
  if (value.is_boolean()) return value.get<bool>();
  throw usage_error(
      fmt::format("{}: zero_optimization.{}: expected true or false, found {}", where, key, value.dump()));
}

/// Whether a DeepSpeed file wants `key` ("offload_optimizer", "offload_param") in host memory.
bool offloads(const Json& zero, const char* key, const std::string& where) {
  if (!zero.contains(key) || zero.at(key).is_null()) return false;
  if (!zero.at(key).is_object()) {
    throw usage_error(
        fmt::format("{}: zero_optimization.{}: expected an object, found {}", where, key, zero.at(key).dump()),
        R"({"device": "cpu"} keeps it in host memory)");
  }
  const Json device = zero.at(key).value("device", Json("none"));
  if (device == Json("none") || device == Json("cpu")) return device == Json("cpu");
  throw usage_error(
      fmt::format("{}: zero_optimization.{}.device: expected \"none\" or \"cpu\", found {}", where, key, device.dump()),
      "nothing is offloaded to files here; cpu keeps it in host memory");
}

/// What gradients are in between ranks; nullopt: as they are computed, which is DeepSpeed's default too.
std::optional<Dtype> reduce_dtype(const Json& config, const std::string& where) {
  const Json name = config.value(kReduceKey, Json());
  if (name.is_null() || name == Json("auto")) return std::nullopt;
  if (name == Json("fp32")) return Dtype::kF32;
  if (name == Json("bf16") || name == Json("bfp16")) return Dtype::kBF16;
  if (name == Json("fp16")) return Dtype::kF16;
  throw usage_error(
      fmt::format("{}: {}: expected \"fp32\", \"bf16\" or \"fp16\", found {}", where, kReduceKey, name.dump()));
}

DeepSpeedChoice from_json(const Json& config, const std::string& where) {
  const Json zero = config.value("zero_optimization", Json::object());
  if (!zero.is_object()) throw usage_error(fmt::format("{}: zero_optimization: expected an object", where));
  const Json stage = zero.value("stage", Json(0));
  if (!stage.is_number() || stage.get<double>() < 0 || stage.get<double>() > 3) {
    throw usage_error(fmt::format("{}: zero_optimization.stage: expected 0, 1, 2 or 3, found {}", where, stage.dump()));
  }
  return {
      .zero = {stage.get<int>()},
      .offload_optimizer = offloads(zero, "offload_optimizer", where) || offloads_by_word(zero, "cpu_offload", where),
      .offload_params = offloads(zero, "offload_param", where) || offloads_by_word(zero, "cpu_offload_param", where) ||
                        offloads_by_word(zero, "cpu_offload_params", where),
      .reduce = reduce_dtype(config, where),
      .ignored = ignored_keys(config)};
}

}  // namespace

DeepSpeedChoice DeepSpeedChoice::from_flag(const std::string& flag) {
  for (int stage = 0; stage <= 3; ++stage) {
    if (flag == std::to_string(stage) || flag == "zero" + std::to_string(stage)) return {.zero = {stage}};
  }
  if (flag == "zero2_offload") return {.zero = {2}, .offload_optimizer = true};
  if (flag == "zero3_offload") return {.zero = {3}, .offload_optimizer = true, .offload_params = true};
  if (is_inline_object(flag) || std::filesystem::is_regular_file(flag)) {
    return from_json(object_of_flag("--deepspeed", flag, R"({"zero_optimization": {"stage": 3}})"),
                     where_of_flag("--deepspeed", flag));
  }
  throw usage_error(fmt::format(
      "--deepspeed \"{}\": expected zero0, zero1, zero2, zero3, zero2_offload, zero3_offload or a DeepSpeed "
      "JSON file",
      flag));
}

ZeroStage ZeroStage::from_flag(const std::string& flag) { return DeepSpeedChoice::from_flag(flag).zero; }

}  // namespace lockstep
