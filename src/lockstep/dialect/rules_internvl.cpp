// The script that InternVL's authors train with: its data sets by name, its tiles, its adapters.
// Source: OpenGVLab/InternVL, internvl_chat/internvl/train/internvl_chat_finetune.py (2.5).
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

/// A set may say itself into how many tiles its pictures are cut at most; else the flag does. One tile where neither counts.
void tiles_of_sets(Translator& at, const Json& sets) {
  if (!at.given_truth("dynamic_image_size", false)) {
    return at.mean_variable("MAX_NUM", "1");
  }
  const GivenFlag* flag = at.given("max_dynamic_patch");
  const std::string usual = flag == nullptr || flag->values.empty() ? "12" : flag->values[0];
  std::set<std::string> found;
  for (const auto& [name, entry] : sets.items()) {
    const Json own = entry.is_object() ? entry.value("max_dynamic_patch", Json()) : Json();
    found.insert(own.is_null() ? usual : own.is_string() ? own.get<std::string>() : own.dump());
  }
  if (found.size() > 1) {
    at.refuse(fmt::format("expected pictures of as many tiles in all data sets, found max_dynamic_patch {}",
                          join(std::vector<std::string>(found.begin(), found.end()), " and ")),
              "the same max_dynamic_patch in each");
  }
  at.mean_variable("MAX_NUM", *found.begin());
}

/// Each of its data sets, by the names that --custom_dataset_info knows.
void meta_path(Translator& at) {
  const Json sets = read_json(at.value());
  if (!sets.is_object() || sets.empty()) {
    at.refuse("expected a file with data sets by name, found none in it",
              R"({"name": {"root": "pictures", "annotation": "rows.jsonl", "repeat_time": 1}})");
  }
  Translator::Values names;
  for (const auto& [name, entry] : sets.items()) names.push_back(name);
  at.mean("dataset", names, "its data sets");
  at.mean("custom_dataset_info", at.values());
  tiles_of_sets(at, sets);
}

void tiles(Translator& at) {
  if (at.given("meta_path") != nullptr) return at.note("with --meta_path it is MAX_NUM, of each picture of a row");
  if (at.flag().name == "max_dynamic_patch" && at.given_truth("dynamic_image_size", false)) {
    return at.mean_variable("MAX_NUM", at.value());
  }
  if (at.flag().name == "dynamic_image_size" && !at.truth()) return at.mean_variable("MAX_NUM", "1");
  at.note(at.flag().name == "dynamic_image_size" ? "--max_dynamic_patch says into how many tiles"
                                                 : "a picture is one tile without --dynamic_image_size true");
}

void tile_size(Translator& at) { at.mean_variable("INPUT_SIZE", at.value()); }

/// As the tokenizer cuts there.
void row_length(Translator& at) {
  at.mean("max_length", at.values());
  at.mean("truncation_strategy", {"right"}, "longer rows lose their end");
}

/// Adapters on the language model; tower and projector are trained whole where they are not frozen.
void llm_adapters(Translator& at) {
  if (at.value() == "0") return at.note("no adapters are trained");
  const bool alone = at.given_truth("freeze_mlp", false) && at.given_truth("freeze_backbone", false);
  at.mean("tuner_type", {alone ? "lora" : "lora_llm"});
  at.mean("lora_rank", at.values());
  if (const auto alpha = twice(at.value())) at.mean("lora_alpha", {*alpha}, "twice the rank");
  at.mean("lora_dropout", {"0.05"});
}

/// Whose adapters are trained all the same.
void frozen_llm(Translator& at) {
  const GivenFlag* rank = at.given("use_llm_lora");
  const bool adapts = rank != nullptr && rank->values != Translator::Values{"0"};
  if (adapts && at.truth()) return at.note("its adapters are trained (--use_llm_lora)");
  at.mean("freeze_llm", at.values());
}

}  // namespace

const std::map<std::string, Rule>& internvl_rules() {
  static const std::map<std::string, Rule> rules = {{"meta_path", meta_path},       {"tiles", tiles},
                                                    {"tile_size", tile_size},       {"row_length", row_length},
                                                    {"llm_adapters", llm_adapters}, {"frozen_llm", frozen_llm}};
  return rules;
}

}  // namespace lockstep
