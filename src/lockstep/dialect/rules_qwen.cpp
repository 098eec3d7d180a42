// The script that Qwen-VL's authors train with: parts that are trained by name, limits of the processor, adapters.
// Source: QwenLM/Qwen3-VL, qwen-vl-finetune/qwenvl/train/{argument,train_qwen}.py and data/data_processor.py (2025).
#include <array>
#include <string>
#include <utility>

#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 3> kTunedParts{
    {{"tune_mm_vision", "freeze_vit"}, {"tune_mm_mlp", "freeze_aligner"}, {"tune_mm_llm", "freeze_llm"}}};

bool trains_adapters(const Translator& at) { return at.given_truth("lora_enable", false); }

/// What is not said is not trained there; the first that is said tells so.
void tuned_part(Translator& at) {
  if (trains_adapters(at)) return at.note("adapters are trained, and nothing beside them");
  bool first = true;
  for (const auto& [word, own] : kTunedParts) {
    if (at.flag().name == word) at.mean(own, {at.truth() ? "false" : "true"});
    if (at.flag().name == word) break;
    first = first && at.given(word) == nullptr;
  }
  if (!first) return;
  for (const auto& [word, own] : kTunedParts) {
    if (at.given(word) == nullptr) at.mean(own, {"true"}, std::string(word) + " is not said");
  }
}

/// On the attention of the language model alone, whose names no tower has.
void attention_adapters(Translator& at) {
  if (!at.truth()) return at.mean("tuner_type", {"full"});
  at.mean("tuner_type", {"lora"});
  at.mean("target_modules", {"q_proj", "k_proj", "v_proj", "o_proj"});
  at.mean("freeze_vit", {"true"});
  at.mean("freeze_aligner", {"true"});
  if (at.given("lora_r") == nullptr) at.mean("lora_rank", {"64"});
  if (at.given("lora_alpha") == nullptr) at.mean("lora_alpha", {"128"});
  if (at.given("lora_dropout") == nullptr) at.mean("lora_dropout", {"0.05"});
}

/// Files, where the script has names of its own program; and what it does where nothing is said.
void data_sets_used(Translator& at) {
  const Translator::Values names = comma_list(at.values());
  for (const auto& name : names) {
    if (name.find('%') != std::string::npos) at.refuse("rows are counted, not a part of them", "--dataset FILE#N");
  }
  at.mean("dataset", names, "files, or names of --custom_dataset_info; blanks around their texts stay");
  at.mean("truncation_strategy", {"right"}, "longer rows lose their end");
  if (at.given("model_max_length") == nullptr) at.mean("max_length", {"512"});
  if (at.trains() && at.given("resume_from_checkpoint") == nullptr && at.has("resume_from_checkpoint"))
    at.mean("resume_from_checkpoint", {"auto"}, "a checkpoint that is there is gone on with");
  constexpr std::array<std::array<const char*, 3>, 4> kUsual{{{"max_pixels", "MAX_PIXELS", "451584"},
                                                              {"min_pixels", "MIN_PIXELS", "12544"},
                                                              {"video_max_frames", "FPS_MAX_FRAMES", "8"},
                                                              {"video_min_frames", "FPS_MIN_FRAMES", "4"}}};
  for (const auto& [flag, name, value] : kUsual) {
    if (at.given(flag) == nullptr) at.mean_variable(name, value);
  }
}

/// The processor's own limits; --max_pixels of Lockstep comes before the processor.
void pixel_limits(Translator& at) {
  const bool most = at.flag().name == "max_pixels";
  if (most && at.given("dataset_use") == nullptr) return at.mean("max_pixels", at.values());
  at.mean_variable(most ? "MAX_PIXELS" : "MIN_PIXELS", at.value());
}

void frame_limits(Translator& at) {
  at.mean_variable(at.flag().name == "video_max_frames" ? "FPS_MAX_FRAMES" : "FPS_MIN_FRAMES", at.value());
}

}  // namespace

const std::map<std::string, Rule>& qwen_rules() {
  static const std::map<std::string, Rule> rules = {{"tuned_part", tuned_part},
                                                    {"attention_adapters", attention_adapters},
                                                    {"data_sets_used", data_sets_used},
                                                    {"pixel_limits", pixel_limits},
                                                    {"frame_limits", frame_limits}};
  return rules;
}

}  // namespace lockstep
