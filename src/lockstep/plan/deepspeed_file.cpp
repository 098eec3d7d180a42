#include "lockstep/plan/deepspeed_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <strings.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/plan/deepspeed_dtypes.h"

namespace lockstep {
namespace {

/// In any case of letters, as DeepSpeed reads the name of an optimizer.
bool same_word(const std::string& a, const std::string& b) { return ::strcasecmp(a.c_str(), b.c_str()) == 0; }

/// What a key, or all below it, comes to. `harmless`: values that ask for nothing, in JSON's spelling.
struct KeyMeaning {
  std::string_view key;  // of zero_optimization: after a dot
  std::vector<std::string_view> harmless;
  std::string_view instead;
};

/// Refused unless they ask for nothing. Source: deepspeed 0.19.8, runtime/config.py and runtime/zero/config.py.
const std::vector<KeyMeaning>& refused_keys() {
  static const std::vector<KeyMeaning> keys = {
      {".zero_hpz_partition_size", {"1"}, "shards of a node are not kept twice: leave it at 1"},
      {".zero_quantized_weights", {"false"}, "weights are gathered as they are: --quant_bits 4 gathers codes of them"},
      {".zero_quantized_nontrainable_weights", {"false"}, "--quant_bits 4 with --tuner_type lora gathers codes"},
      {".zero_quantized_gradients", {"false"}, "\"communication_data_type\": \"bf16\" halves what is sent"},
      {".zenflow", {}, "{\"offload_optimizer\": {\"device\": \"cpu\"}} computes its steps there, whole"},
      {".mics_shard_size", {"-1", "0"}, "shards are divided over all ranks"},
      {"tensor_parallel", {}, "tensors are not divided: zero3 shards the weights"},
      {"pipeline", {}, "several devices a rank: --device_map auto"},
      {"sequence_parallel_size", {"1"}, "a row is computed by one rank"},
      {"sparse_attention", {}, "attention sees every token that the model says"},
      {"amp", {}, "--torch_dtype bfloat16"},
      {"elasticity", {}, "a run goes on with other ranks by --resume_from_checkpoint"},
      {"curriculum_learning", {}, "rows come in a random order, or in that of the file"},
      {"data_efficiency", {}, "rows come in a random order, or in that of the file"},
      {"progressive_layer_drop", {}, "every layer is computed"},
      {"eigenvalue", {}, "it belongs to compression"},
      {"compression_training", {}, "train, then `lockstep export --quant_bits 4`"},
      {"quantize_training", {}, "--quant_bits 4 with --tuner_type lora"},
      {"autotuning", {}, "--per_device_train_batch_size auto, and `lockstep plan`"},
      {"hybrid_engine", {}, "it belongs to training by rewards"},
      {"gradient_allreduce_op", {"\"mean\""}, "gradients are of the mean over all tokens of a step: \"mean\""},
      {"sparse_gradients", {"false"}, "gradients are dense"},
      {"optimizer.legacy_fusion", {"false"}, "there is one AdamW"},
  };
  return keys;
}

/// How it is computed and moved, in one way here; and what is told elsewhere.
constexpr std::array<std::string_view, 49> kNoDifference = {".allgather_partitions",
                                                            ".allgather_bucket_size",
                                                            ".overlap_comm",
                                                            ".reduce_scatter",
                                                            ".reduce_bucket_size",
                                                            ".contiguous_gradients",
                                                            ".sub_group_size",
                                                            ".stage3_prefetch_bucket_size",
                                                            ".stage3_param_persistence_threshold",
                                                            ".stage3_model_persistence_threshold",
                                                            ".stage3_max_live_parameters",
                                                            ".stage3_max_reuse_distance",
                                                            ".stage3_gather_16bit_weights_on_model_save",
                                                            ".stage3_gather_fp16_weights_on_model_save",
                                                            ".gather_16bit_weights_on_model_save",
                                                            ".stage3_use_all_reduce_for_fetch_params",
                                                            ".stage3_module_granularity_threshold",
                                                            ".round_robin_gradients",
                                                            ".load_from_fp32_weights",
                                                            ".elastic_checkpoint",
                                                            ".ignore_unused_parameters",
                                                            ".legacy_stage1",
                                                            ".use_multi_rank_bucket_allreduce",
                                                            ".memory_efficient_linear",
                                                            ".prefetch_bucket_size",
                                                            ".param_persistence_threshold",
                                                            ".max_live_parameters",
                                                            ".max_reuse_distance",
                                                            ".override_module_apply",
                                                            ".log_trace_cache_warnings",
                                                            ".pipeline_loading_checkpoint",
                                                            ".mics_hierarchical_params_gather",
                                                            ".zeropp_loco_param",
                                                            ".cpu_offload_use_pin_memory",
                                                            "steps_per_print",
                                                            "wall_clock_breakdown",
                                                            "dump_state",
                                                            "memory_breakdown",
                                                            "zero_allow_untested_optimizer",
                                                            "zero_force_ds_cpu_optimizer",
                                                            "comms_config",
                                                            "comms_logger",
                                                            "flops_profiler",
                                                            "prescale_gradients",
                                                            "gradient_predivide_factor",
                                                            "aio",
                                                            "checkpoint",
                                                            "data_types",
                                                            "compile"};
constexpr std::array<std::string_view, 11> kToldElsewhere = {
    "monitor_config",           "tensorboard", "wandb",  "csv_monitor",       "comet",
    "activation_checkpointing", "nebula",      "timers", "disable_allgather", "seq_parallel_communication_data_type",
    "dataloader_drop_last"};

/// What flags say too.
struct SaidByFlag {
  std::string_view key, flag;
};
constexpr std::array<SaidByFlag, 9> kSaidByFlags = {
    {{"train_micro_batch_size_per_gpu", "--per_device_train_batch_size"},
     {"gradient_accumulation_steps", "--gradient_accumulation_steps"},
     {"gradient_clipping", "--max_grad_norm"},
     {"optimizer.lr", "--learning_rate"},
     {"optimizer.eps", "--adam_epsilon"},
     {"optimizer.weight_decay", "--weight_decay"},
     {"scheduler.warmup_max_lr", "--learning_rate"},
     {"scheduler.warmup_num_steps", "--warmup_steps"},
     {"scheduler.total_num_steps", "--max_steps"}}};

/// "auto" leaves it to the flags, and what is off asks for nothing.
bool asks_for_something(const Json& value) {
  if (value.is_object() && value.contains("enabled")) return asks_for_something(value.at("enabled"));
  if (value.is_object()) return std::ranges::any_of(value, asks_for_something);
  return !value.is_null() && value != Json("auto") && value != Json(false) && !(value.is_array() && value.empty());
}

bool is_one_of(const Json& value, const std::vector<std::string_view>& words) {
  return std::ranges::any_of(words, [&](std::string_view word) {
    const Json other = parse_json_or_discard(word);
    return value.is_number() && other.is_number() ? value.get<double>() == other.get<double>() : value == other;
  });
}

class Reader {
 public:
  Reader(const Json& config, std::string where) : config_(config), where_(std::move(where)) {}

  DeepSpeedChoice read() {
    if (config_.contains("fsdp") || config_.contains("fsdp_config")) {
      throw usage_error(fmt::format("{}: it is a file for FSDP", where_), "give it as --fsdp");
    }
    const Json zero = config_.value("zero_optimization", Json::object());
    if (!zero.is_object()) throw wrong("zero_optimization", "an object", zero);
    out_.zero.stage = stage_of(zero);
    out_.offload_optimizer = offloads(zero, "offload_optimizer") || by_word(zero, "cpu_offload");
    out_.offload_params =
        offloads(zero, "offload_param") || by_word(zero, "cpu_offload_param") || by_word(zero, "cpu_offload_params");
    out_.reduce = reduce_dtype();
    out_.says_clipping = config_.contains("gradient_clipping");
    for (const auto& [key, value] : zero.items()) judge("." + key, "zero_optimization." + key, value);
    for (const auto& [key, value] : config_.items()) judge(key, key, value);
    return std::move(out_);
  }

 private:
  UserError wrong(const std::string& key, const std::string& expected, const Json& found) const {
    return usage_error(fmt::format("{}: {}: expected {}, found {}", where_, key, expected, cut_text(found.dump())));
  }

  int stage_of(const Json& zero) const {
    const Json stage = zero.value("stage", Json(0));
    const double number = stage.is_number() ? stage.get<double>() : -1;
    if (number < 0 || number > 3 || number != std::floor(number))
      throw wrong("zero_optimization.stage", "0, 1, 2 or 3", stage);
    return static_cast<int>(number);
  }

  /// DeepSpeed's older key, which is true or false.
  bool by_word(const Json& zero, const char* key) const {
    const Json value = zero.value(key, Json(false));
    if (!value.is_boolean()) throw wrong(std::string("zero_optimization.") + key, "true or false", value);
    return value.get<bool>();
  }

  bool offloads(const Json& zero, const char* key) const {
    const std::string name = std::string("zero_optimization.") + key;
    if (!zero.contains(key) || zero.at(key).is_null()) return false;
    const Json& part = zero.at(key);
    if (!part.is_object()) {
      throw usage_error(fmt::format("{}: {}: expected an object, found {}", where_, name, cut_text(part.dump())),
                        R"({"device": "cpu"} keeps it in host memory)");
    }
    const Json device = part.value("device", Json("none"));
    if (device != Json("none") && device != Json("cpu")) {
      throw usage_error(
          fmt::format("{}: {}.device: expected \"none\" or \"cpu\", found {}", where_, name, device.dump()),
          "nothing is offloaded to files here; cpu keeps it in host memory");
    }
    const bool there = device == Json("cpu");
    if (const Json ratio = part.value("ratio", Json(1.0));
        there && (!ratio.is_number() || ratio.get<double>() != 1.0)) {
      throw usage_error(fmt::format("{}: {}.ratio: a part is not offloaded, found {}", where_, name, ratio.dump()),
                        "1.0 keeps all of it in host memory");
    }
    return there;
  }

  /// Of gradients between ranks; nullopt: as they are computed, which is DeepSpeed's default too.
  std::optional<Dtype> reduce_dtype() const {
    const Json name = config_.value("communication_data_type", Json());
    if (name.is_null() || name == Json("auto")) return std::nullopt;
    if (name == Json("fp32")) return Dtype::kF32;
    if (name == Json("bf16") || name == Json("bfp16")) return Dtype::kBF16;
    if (name == Json("fp16")) return Dtype::kF16;
    throw wrong("communication_data_type", "\"fp32\", \"bf16\" or \"fp16\"", name);
  }

  void judge(const std::string& key, const std::string& name, const Json& value) {
    static constexpr std::array<std::string_view, 9> kUsed = {
        "zero_optimization",  "communication_data_type", ".stage",
        ".offload_optimizer", ".offload_param",          ".cpu_offload",
        ".cpu_offload_param", ".cpu_offload_params",     "train_batch_size"};
    if (is_dtype_section(key)) return read_dtype_section(key, value, where_, out_);
    if (key == "optimizer") return say_optimizer(value);
    if (key == "scheduler") return say_scheduler(value);
    if (key == "train_batch_size") {
      if (!asks_for_something(value)) return;
      if (!value.is_number_integer() || value.get<int64_t>() < 1)
        throw wrong(name, "a whole number or \"auto\"", value);
      out_.rows_of_step = value.get<int64_t>();
      return;
    }
    if (std::ranges::find(kUsed, key) != kUsed.end() || !asks_for_something(value)) return;
    if (says(key, name, value)) return;
    for (const auto& refused : refused_keys()) {
      if (refused.key != key || is_one_of(value, refused.harmless)) continue;
      const bool splits_nothing = value.is_object() && is_one_of(value.value("autotp_size", Json(0)), {"0", "1"});
      if (key == "tensor_parallel" && splits_nothing) continue;
      throw usage_error(fmt::format("{}: {}: is not built, found {}", where_, name, cut_text(value.dump())),
                        std::string(refused.instead));
    }
    const bool known = std::ranges::find(kNoDifference, key) != kNoDifference.end() ||
                       std::ranges::find(kToldElsewhere, key) != kToldElsewhere.end() ||
                       std::ranges::any_of(refused_keys(), [&](const auto& one) { return one.key == key; });
    if (known) {
      out_.ignored.push_back(name);
    } else if (!key.starts_with("_") && !key.starts_with("._")) {  // those are comments
      out_.unknown.push_back(name);
    }
  }

  bool says(const std::string& key, const std::string& name, const Json& value) {
    const auto* const said = std::ranges::find(kSaidByFlags, key, &SaidByFlag::key);
    if (said == kSaidByFlags.end()) return false;
    if (!value.is_number()) throw wrong(name, "a number or \"auto\"", value);
    out_.says.push_back({name, std::string(said->flag), value.dump()});
    return true;
  }

  /// The parameters of a block and its kind, one of `kinds`; empty: the block asks for nothing.
  std::pair<std::string, Json> block(const std::string& key, const Json& value, const std::vector<std::string>& kinds,
                                     const std::string& hint) const {
    if (value.is_null()) return {};
    if (!value.is_object()) throw wrong(key, "an object", value);
    const Json type = value.value("type", Json());
    const auto kind = std::ranges::find_if(
        kinds, [&](const std::string& one) { return type.is_string() && same_word(one, type.get<std::string>()); });
    if (type.is_string() && kind == kinds.end()) {
      throw usage_error(
          fmt::format("{}: {}.type: expected {}, found {}", where_, key, join(kinds, " or "), type.dump()), hint);
    }
    const Json params = value.value("params", Json::object());
    if (!params.is_object()) throw wrong(key + ".params", "an object", params);
    return {type.is_string() ? *kind : "", params};
  }

  /// transformers makes flags of what is "auto", and leaves what is not there to DeepSpeed: this, whatever flags say.
  void say_default(const std::string& key, const Json& params, const char* name, const char* flag, const char* number,
                   bool by_default) {
    if (params.contains(name)) return;
    out_.says.push_back({fmt::format("{}.params.{} (not given)", key, name), flag, number, by_default});
  }

  /// Source: deepspeed 0.19.6 runtime/engine.py _configure_basic_optimizer, ops/adam FusedAdam and DeepSpeedCPUAdam; torch 2.11 AdamW.
  void say_optimizer_defaults(const Json& params, bool decays_in_gradient) {
    const bool of_torch = params.value("torch_adam", Json(false)) == true && !decays_in_gradient;
    const std::array<std::array<const char*, 3>, 5> defaults = {
        {{"lr", "--learning_rate", "0.001"},
         {"betas", "--adam_beta1", "0.9"},
         {"betas", "--adam_beta2", "0.999"},
         {"eps", "--adam_epsilon", "1e-08"},
         {"weight_decay", "--weight_decay", of_torch ? "0.01" : "0"}}};
    const Json scheduler = config_.value("scheduler", Json());
    const Json schedule = scheduler.is_object() ? scheduler.value("type", Json()) : Json();
    const bool sets_rate = schedule.is_string() && (same_word("WarmupLR", schedule.get<std::string>()) ||
                                                    same_word("WarmupDecayLR", schedule.get<std::string>()));
    for (const auto& [name, flag, number] : defaults) {
      if (sets_rate && std::string_view(name) == "lr") continue;  // theirs is the schedule's own
      say_default("optimizer", params, name, flag, number, /*by_default=*/true);
    }
  }

  void say_optimizer(const Json& value) {
    const auto [kind, params] = block("optimizer", value, {"Adam", "AdamW"}, "AdamW is the one optimizer");
    out_.decays_all = value.is_object();  // transformers 5.23 integrations/deepspeed.py gives it one group
    for (const auto& [name, one] : params.items()) {
      const std::string path = "optimizer.params." + name;
      if (name == "adam_w_mode" && one == false && kind == "Adam" && params.value("weight_decay", Json(0)) != 0) {
        throw usage_error(
            fmt::format("{}: {}: expected true, found false: decay in the gradient is not built", where_, path),
            "\"adam_w_mode\": true decays the weights themselves, \"weight_decay\": 0 not at all");
      }
      if (name == "bias_correction" && one == false) {
        throw usage_error(fmt::format("{}: {}: expected true, found false: moments are always corrected", where_, path),
                          "leave it out");
      }
      if (!asks_for_something(one) || name == "bias_correction") continue;
      if (name == "betas" && one.is_array() && one.size() == 2) {
        out_.says.push_back({path + "[0]", "--adam_beta1", one[0].dump()});
        out_.says.push_back({path + "[1]", "--adam_beta2", one[1].dump()});
      } else if (!says("optimizer." + name, path, one)) {
        out_.ignored.push_back(path);
      }
    }
    if (kind.empty()) return;
    say_optimizer_defaults(params, kind == "Adam" && params.value("adam_w_mode", Json(true)) == false);
  }

  /// One of DeepSpeed's own schedules is the run's, whatever flags say of it; what it is not told is DeepSpeed's default, which
  /// the flags must say too. "auto" is what transformers makes of it. Source: deepspeed 0.19.8 runtime/lr_schedules.py,
  /// transformers 5.23 integrations/deepspeed.py.
  void say_scheduler(const Json& value) {
    const auto [kind, params] = block("scheduler", value, {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"},
                                      "leave it out: --lr_scheduler_type says it");
    if (kind.empty()) return;
    const bool decays = kind != "WarmupLR", turns = kind == "WarmupCosineLR";
    const std::vector<std::string> shapes =
        turns ? std::vector<std::string>{"warmup_type", "warmup_min_ratio", "cos_min_ratio"}
              : std::vector<std::string>{"warmup_type", "warmup_min_lr"};
    Json shape = Json::object();
    for (const auto& [name, one] : params.items()) {
      const std::string path = "scheduler.params." + name;
      if (one == "auto" || name == "last_batch_iteration") continue;
      if (std::ranges::find(shapes, name) != shapes.end()) {
        shape[name] = one;
      } else if ((name == "total_num_steps" && !decays) || (name == "warmup_max_lr" && turns) ||
                 !says("scheduler." + name, path, one)) {
        throw usage_error(fmt::format("{}: {}: {} takes no such parameter", where_, path, kind), "leave it out");
      }
    }
    say_default("scheduler", params, "warmup_num_steps", "--warmup_steps", "1000", /*by_default=*/false);
    if (kind == "WarmupDecayLR")
      say_default("scheduler", params, "warmup_max_lr", "--learning_rate", "0.001", /*by_default=*/false);
    if (decays && !params.contains("total_num_steps")) {
      throw usage_error(fmt::format("{}: scheduler.params.total_num_steps is not there, and {} needs it", where_, kind),
                        "\"total_num_steps\": \"auto\"");
    }
    out_.says.push_back({"scheduler.type", "--lr_scheduler_type", kind});
    out_.says.push_back({"scheduler.params", "--lr_scheduler_kwargs", shape.empty() ? "" : shape.dump()});
  }

  const Json& config_;
  std::string where_;
  DeepSpeedChoice out_;
};

}  // namespace

DeepSpeedChoice read_deepspeed_file(const Json& config, const std::string& where) {
  return Reader(config, where).read();
}

}  // namespace lockstep
