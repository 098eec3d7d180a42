// --accelerate_config: what `accelerate config` has written, or what `accelerate launch` has put into the environment.
// Source: accelerate 1.15.0, commands/config/config_args.py and utils/launch.py.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/env.h"
#include "lockstep/base/text_format.h"
#include "lockstep/base/yaml_file.h"
#include "lockstep/dialect/accelerate.h"
#include "lockstep/dialect/flag_value.h"
#include "lockstep/dialect/fsdp_config.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string word_at(const Json& json, const char* key, const std::string& otherwise = "") {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return otherwise;
  return at->is_string() ? at->get<std::string>() : at->dump();
}

Json object_at(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_object() ? *at : Json::object();
}

bool any_given(const Translator& at, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return at.given(name) != nullptr; });
}

class Config {
 public:
  Config(Translator& at, Json json, std::string where)
      : at_(at), json_(std::move(json)), where_("of " + std::move(where)) {}

  void take() {
    const std::string type = upper(word_at(json_, "distributed_type", "NO"));
    if (type == "DEEPSPEED") {
      take_deepspeed(object_at(json_, "deepspeed_config"));
    } else if (type == "FSDP") {
      take_fsdp(object_at(json_, "fsdp_config"));
    } else if (type == "NO" || type.starts_with("MULTI_")) {
      if (!any_given(at_, {"deepspeed", "fsdp"})) at_.mean("deepspeed", {"zero0"}, where_ + ": every rank holds all");
    } else {
      at_.refuse(fmt::format("distributed_type {} is not built", type), "DEEPSPEED, FSDP or MULTI_GPU");
    }
    take_dtype(word_at(json_, "mixed_precision", "no"));
    take_ranks();
    if (is_true(word_at(json_, "use_cpu", "false"))) at_.mean("device", {"cpu"}, where_);
    tell_the_rest();
  }

 private:
  void take_deepspeed(const Json& config) {
    const std::string file = word_at(config, "deepspeed_config_file", "none");
    if (file != "none") return at_.mean("deepspeed", {file}, where_);
    const std::string stage = word_at(config, "zero_stage", "2");
    const auto offloads = [&](const char* key) { return word_at(config, key, "none") == "cpu"; };
    for (const char* key : {"offload_optimizer_device", "offload_param_device"}) {
      if (word_at(config, key, "none") == "nvme")
        at_.refuse(fmt::format("{} nvme: nothing is offloaded to files here", key), "cpu");
    }
    mean_stage(stage, offloads("offload_optimizer_device"), offloads("offload_param_device"));
    take_number(config, "gradient_accumulation_steps", "gradient_accumulation_steps");
    take_number(config, "gradient_clipping", "max_grad_norm");
  }

  void mean_stage(const std::string& stage, bool optimizer, bool params) {
    if (!optimizer && !params) return at_.mean("deepspeed", {"zero" + stage}, where_);
    Json zero = {{"stage", literal_from(stage)}};
    if (optimizer) zero["offload_optimizer"] = {{"device", "cpu"}};
    if (params) zero["offload_param"] = {{"device", "cpu"}};
    at_.mean("deepspeed", {Json{{"zero_optimization", std::move(zero)}, {"gradient_clipping", "auto"}}.dump()}, where_);
  }

  void take_number(const Json& config, const char* key, const char* flag) {
    const std::string word = word_at(config, key, "auto");
    if (word == "auto" || word == "none") return;
    const GivenFlag* const given = at_.given(flag);
    if (given == nullptr) return at_.mean(flag, {word}, where_);
    const std::string own = given->values.empty() ? "" : given->values.front();
    if (literal_from(own) == literal_from(word)) return;
    at_.refuse(fmt::format("deepspeed_config.{} is {}, and --{} {}", key, word, flag, own),
               "say the same in both, or \"auto\" in the file");
  }

  void take_fsdp(const Json& config) {
    const FsdpConfig fsdp = FsdpConfig::from(config);
    if (fsdp.hybrid) at_.refuse("shards of a node are not kept twice", "FULL_SHARD");
    mean_stage(std::to_string(fsdp.stage.value_or(3)), fsdp.offloads, fsdp.offloads);
    if (const std::string unused = fsdp.unused_note(); !unused.empty()) at_.note(unused);
    if (!fsdp.recomputes) return;
    if (any_given(at_, {"gradient_checkpointing"}))
      return at_.note("fsdp_activation_checkpointing: --gradient_checkpointing says it");
    at_.mean("gradient_checkpointing", {"true"}, where_);
  }

  void take_dtype(const std::string& word) {
    if (word == "no" || any_given(at_, {"torch_dtype", "dtype", "bf16", "fp16", "pure_bf16"})) return;
    if (word != "bf16" && word != "fp16")
      at_.refuse(fmt::format("mixed_precision {} is not built", word), "bf16, fp16 or no");
    at_.mean("torch_dtype", {word == "bf16" ? "bfloat16" : "float16"}, where_);
  }

  /// One machine's ranks are started here; of several each is started by itself.
  void take_ranks() {
    const std::string machines = word_at(json_, "num_machines", "1"), ranks = word_at(json_, "num_processes", "");
    if (machines != "1") {
      return at_.note(
          "ranks of several machines: start each by torchrun, or with NNODES, NODE_RANK, MASTER_ADDR and "
          "NPROC_PER_NODE");
    }
    if (!ranks.empty() && !any_given(at_, {"nproc"})) at_.mean("nproc", {ranks}, where_);
  }

  /// "all", or "0,1": which GPUs there are is said before this program starts.
  void tell_gpus() {
    const std::string ids = word_at(json_, "gpu_ids", "all");
    if (ids != "all" && !ids.empty())
      at_.note(fmt::format("gpu_ids {0}: CUDA_VISIBLE_DEVICES={0} in front of the command chooses them", ids));
  }

  void refuse_split_layers() const {
    const Json sizes = object_at(json_, "parallelism_config");
    for (const auto& [key, value] : sizes.items()) {
      const bool splits = key.ends_with("tp_size") || key.ends_with("cp_size") || key.ends_with("sp_size");
      if (splits && value != 1 && value != "1" && !value.is_null())
        at_.refuse(fmt::format("{}: one layer's work is not split over ranks", key), "zero3, or a device map");
    }
  }

  void tell_the_rest() {
    tell_gpus();
    refuse_split_layers();
    static const std::set<std::string> kKnown = {"compute_environment",
                                                 "distributed_type",
                                                 "mixed_precision",
                                                 "num_processes",
                                                 "num_machines",
                                                 "machine_rank",
                                                 "main_process_ip",
                                                 "main_process_port",
                                                 "rdzv_backend",
                                                 "same_network",
                                                 "use_cpu",
                                                 "downcast_bf16",
                                                 "debug",
                                                 "main_training_function",
                                                 "tpu_name",
                                                 "tpu_zone",
                                                 "tpu_env",
                                                 "tpu_use_cluster",
                                                 "tpu_use_sudo",
                                                 "command_file",
                                                 "commands",
                                                 "gpu_ids",
                                                 "dynamo_config",
                                                 "enable_cpu_affinity",
                                                 "deepspeed_config",
                                                 "fsdp_config",
                                                 "megatron_lm_config",
                                                 "fp8_config",
                                                 "ipex_config",
                                                 "mpirun_config",
                                                 "parallelism_config"};
    std::vector<std::string> unknown;
    for (const auto& [key, value] : json_.items()) {
      if (!kKnown.contains(key)) unknown.push_back(key);
    }
    if (!unknown.empty()) at_.note("no keys of accelerate, nothing is done about them: " + join(unknown, ", "));
  }

  Translator& at_;
  Json json_;
  std::string where_;
};

void accelerate_config(Translator& at) {
  const bool inline_json = at.value().starts_with('{');
  const Json json = inline_json ? literal_from(at.value()) : read_yaml(at.value());
  if (!json.is_object()) at.refuse("expected a map of accelerate's settings");
  Config(at, json, inline_json ? "accelerate launch" : at.value()).take();
}

}  // namespace

const std::map<std::string, Rule>& accelerate_rules() {
  static const std::map<std::string, Rule> rules = {{"accelerate_config", accelerate_config}};
  return rules;
}

std::string accelerate_launch_settings(const Env& env) {
  if (!env.has("ACCELERATE_MIXED_PRECISION")) return "";
  const auto text = [&](const char* name, const char* otherwise) { return env.text(name).value_or(otherwise); };
  Json json = {{"mixed_precision", text("ACCELERATE_MIXED_PRECISION", "no")}};
  if (env.flag("ACCELERATE_USE_DEEPSPEED").value_or(false)) {
    json["distributed_type"] = "DEEPSPEED";
    json["deepspeed_config"] = {
        {"zero_stage", text("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")},
        {"offload_optimizer_device", text("ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "none")},
        {"offload_param_device", text("ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "none")},
        {"gradient_accumulation_steps", text("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "auto")},
        {"gradient_clipping", text("ACCELERATE_GRADIENT_CLIPPING", "none")},
        {"deepspeed_config_file", text("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")}};
  } else if (env.flag("ACCELERATE_USE_FSDP").value_or(false)) {
    json["distributed_type"] = "FSDP";
    json["fsdp_config"] = {{"fsdp_reshard_after_forward", text("FSDP_RESHARD_AFTER_FORWARD", "true")},
                           {"fsdp_offload_params", text("FSDP_OFFLOAD_PARAMS", "false")},
                           {"fsdp_activation_checkpointing", text("FSDP_ACTIVATION_CHECKPOINTING", "false")}};
    if (env.has("FSDP_SHARDING_STRATEGY"))
      json["fsdp_config"]["fsdp_sharding_strategy"] = *env.text("FSDP_SHARDING_STRATEGY");
  }
  return json.dump();
}

}  // namespace lockstep
