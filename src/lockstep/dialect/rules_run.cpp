// Ranks, sharding, and what a run or an answer is made with.
#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/dialect/flag_value.h"
#include "lockstep/dialect/fsdp_config.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// ms-swift 2 had names of its own; "" and None stand for none.
void deepspeed(Translator& at) {
  std::string word = at.value();
  if (word.empty()) return;
  if (word.starts_with("default-")) word = word.substr(8);
  if (word.starts_with("zero") && !word.ends_with(".json")) std::ranges::replace(word, '-', '_');
  at.mean("deepspeed", {word});
}

/// FSDP's words as ZeRO's: full_shard is zero3, shard_grad_op zero2. A config beside them counts more, but where nothing is sharded.
std::string stage_of_fsdp(const Translator& at, const std::string& words, const FsdpConfig& config) {
  if (contains(words, "hybrid_shard") || config.hybrid)
    at.refuse("shards of a node are not kept twice", "--deepspeed zero3");
  const int stage = contains(words, "no_shard") ? 0 : config.stage.value_or(contains(words, "shard_grad_op") ? 2 : 3);
  const bool offloads = contains(words, "offload") || config.offloads;
  if (stage == 0 && offloads)
    at.refuse("what is not sharded is offloaded by a flag of its own", "--deepspeed zero0 --offload params,optimizer");
  return fmt::format("zero{}{}", stage, offloads ? "_offload" : "");
}

Json object_in(const std::string& word) { return word.starts_with('{') ? literal_from(word) : read_json(word); }

/// What --fsdp names: a file, or ms-swift's preset; --fsdp_config beside words alone; an empty object where neither is.
Json fsdp_file(const Translator& at) {
  const GivenFlag *flag = at.given("fsdp"), *config = at.given("fsdp_config");
  if (flag == nullptr) return Json::object();
  const std::string word = flag->values.empty() ? "" : flag->values.front();
  if (lowered(word) == "fsdp2") return {{"fsdp_config", {{"activation_checkpointing", true}}}};
  if (word.ends_with(".json")) {
    Json file = read_json(word);
    if (!file.is_object()) throw usage_error(fmt::format("{}: expected an object, found {}", word, file.type_name()));
    return file;
  }
  return config == nullptr || config->values.empty() ? Json::object()
                                                     : Json{{"fsdp_config", object_in(config->values.front())}};
}

FsdpConfig config_of(const Json& fsdp_file) { return FsdpConfig::from(fsdp_file.value("fsdp_config", Json::object())); }

/// FSDP's files say it in words of their own, beside which --gradient_checkpointing is left false.
void recompute(Translator& at) {
  const std::string word = at.values().empty() ? "true" : lowered(at.value());
  if (!is_false(word) || !config_of(fsdp_file(at)).recomputes) {
    return at.mean("gradient_checkpointing", {is_true(word) ? "true" : is_false(word) ? "false" : word});
  }
  at.note("activation_checkpointing of --fsdp says that activations are computed again");
}

void fsdp(Translator& at) {
  std::string words = at.value();
  for (const auto& value : at.values()) words += " " + value;
  words = lowered(std::move(words));
  const bool bare = at.values().empty();  // transformers 5 takes that for true
  if ((words.find_first_not_of(' ') == std::string::npos && !bare) || is_false(at.value()))
    return at.note("it says that FSDP is not used");
  const Json file = fsdp_file(at);
  const bool in_file = at.value().ends_with(".json");
  const FsdpConfig config = config_of(file);
  if (in_file) words = lowered(file.value("fsdp", Json("full_shard")).dump());
  at.mean("deepspeed", {stage_of_fsdp(at, words, config)});
  if (config.recomputes) at.mean("gradient_checkpointing", {"true"}, "activation_checkpointing of --fsdp");
  if (const std::string unused = config.unused_note(); in_file && !unused.empty()) at.note(unused);
}

void fsdp_config(Translator& at) {
  const GivenFlag* const words = at.given("fsdp");
  if (words == nullptr) return at.note("it belongs to --fsdp");
  const std::string first = words->values.empty() ? "" : lowered(words->values.front());
  if (first == "fsdp2" || first.ends_with(".json")) return at.note("what --fsdp names counts in its place");
  const std::string unused = config_of(fsdp_file(at)).unused_note();
  at.note(unused.empty() ? "it counts in --fsdp" : unused);
}

void use_cpu(Translator& at) {
  if (at.truth()) return at.mean("device", {"cpu"});
  at.note("GPUs are used where there are some");
}

/// What asks for measures or answers alone must not train. LLaMA-Factory trains only where do_train says so; the others'
/// scripts train whatever it says, unless it is false.
void do_what(Translator& at) {
  const bool trains = at.given_truth("do_train", at.stack() != Stack::kLlamaFactory);
  if (at.trains() && !trains) {
    at.refuse("nothing is to be trained where do_train is not true",
              "lockstep eval with the same words measures and writes answers, lockstep infer answers");
  }
  if (at.trains() && at.flag().name == "do_predict" && at.truth()) {
    return at.note(
        "no rows are answered behind the training: the same words without do_train, or lockstep eval, do that");
  }
  // LLaMA-Factory and the Trainer's scripts measure once behind the training where no strategy says when.
  if (at.trains() && at.flag().name == "do_eval" && at.truth() && at.given("eval_strategy") == nullptr &&
      at.given("evaluation_strategy") == nullptr && at.stack() != Stack::kSwift)
    return at.mean("eval_strategy", {"end"});
  const bool measures = at.verb() == "eval" && at.stack() == Stack::kLlamaFactory;
  at.note(measures ? "without do_train rows are answered and measured: lockstep eval" : "the verb says what is done");
}

void temperature(Translator& at) {
  if (!at.given_truth("do_sample", true)) return at.note("do_sample is false, and the likeliest token is taken");
  at.mean("temperature", at.values());
}

void do_sample(Translator& at) {
  if (!at.truth()) return at.mean("temperature", {"0"});
  const bool has_default = at.stack() == Stack::kLlamaFactory;
  if (at.given("temperature") == nullptr && !has_default) return at.mean("temperature", {"1"});
  at.note("--temperature says it");
}

/// What was evaluated in training: the files that args.json names, or the rows that were kept apart.
void load_data_args(Translator& at) {
  namespace fs = std::filesystem;
  if (!at.truth()) return at.note("rows are those of --val_dataset");
  if (at.given("val_dataset") != nullptr) return at.note("--val_dataset says which rows");
  const GivenFlag* folder = nullptr;
  for (const char* name : {"adapters", "lora_modules", "ckpt_dir", "model", "model_id_or_path"}) {
    if (folder == nullptr) folder = at.given(name);
  }
  if (folder == nullptr || folder->values.empty()) at.refuse("expected a checkpoint, found none", "--adapters DIR");
  const fs::path checkpoint = folder->values.front();
  for (const auto& dir : {checkpoint, checkpoint.parent_path()}) {
    if (!fs::exists(dir / "args.json")) continue;
    const Json args = read_json((dir / "args.json").string());
    const auto files = args.find("val_dataset");
    std::vector<std::string> found;
    if (files != args.end() && files->is_array()) {
      for (const auto& file : *files) found.push_back(file.is_string() ? file.get<std::string>() : file.dump());
    }
    if (!found.empty()) return at.mean("val_dataset", found, "of " + (dir / "args.json").string());
    const bool split = !args.contains("split_dataset_ratio") || args["split_dataset_ratio"] != 0;
    if (const fs::path kept = dir / "val_dataset.jsonl"; split && fs::exists(kept))
      return at.mean("val_dataset", {kept.string()}, "the rows that training kept apart");
  }
  at.refuse(fmt::format("{} does not say which rows were evaluated", (checkpoint / "args.json").string()),
            "--val_dataset FILE");
}

/// LLaMA-Factory feeds SwanLab beside whatever report_to says.
void report_to(Translator& at) {
  auto names = at.values();
  if (at.given_truth("use_swanlab", false)) {
    std::erase(names, "none");
    if (std::ranges::find(names, "swanlab") == names.end()) names.emplace_back("swanlab");
  }
  at.mean("report_to", names);
}

void use_swanlab(Translator& at) {
  if (!at.truth()) return at.note("it is not fed as it is");
  if (at.given("report_to") != nullptr) return at.note("it stands beside what --report_to says");
  at.mean("report_to", {"swanlab"});
}

/// Gigabytes.
void export_size(Translator& at) { at.mean("max_shard_size", {at.value() + "GB"}); }

}  // namespace

const std::map<std::string, Rule>& run_rules() {
  static const std::map<std::string, Rule> rules = {{"deepspeed", deepspeed},
                                                    {"fsdp", fsdp},
                                                    {"fsdp_config", fsdp_config},
                                                    {"recompute", recompute},
                                                    {"use_cpu", use_cpu},
                                                    {"do_what", do_what},
                                                    {"do_sample", do_sample},
                                                    {"temperature", temperature},
                                                    {"load_data_args", load_data_args},
                                                    {"report_to", report_to},
                                                    {"use_swanlab", use_swanlab},
                                                    {"export_size", export_size}};
  return rules;
}

}  // namespace lockstep
