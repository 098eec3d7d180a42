// What a stack does where nothing is said.
#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {

bool Translator::speaks_version_2() const {
  constexpr std::array kWords{"sft_type", "model_id_or_path", "template_type", "custom_train_dataset_path"};
  return std::ranges::any_of(kWords, [&](const char* word) { return given(word) != nullptr; });
}

bool Translator::said(const std::string& own) const {
  return meanings_.contains(own) || std::ranges::find(passed_, "--" + own) != passed_.end();
}

bool Translator::means(const std::string& own, const std::string& value) const {
  const auto at = meanings_.find(own);
  return at != meanings_.end() && at->second.values == Values{value};
}

bool Translator::adapts() const {
  const auto at = meanings_.find("tuner_type");
  if (at != meanings_.end()) return at->second.values != Values{"full"};
  return stack_ == Stack::kSwift || stack_ == Stack::kLlamaFactory;
}

/// Whether LLaMA-Factory would lay long texts in several blocks, of which nothing is lost. Rows that are streamed are not looked at
/// before it is their turn.
bool Translator::cuts_texts() const {
  const GivenFlag* stage = given("stage");
  if (stack_ != Stack::kLlamaFactory || stage == nullptr || stage->values != Values{"pt"}) return false;
  if (!given_truth("packing", true)) return false;
  return verb_ == "eval" || (trains() && !given_truth("streaming", false));
}

/// Whether the script cuts what is longer than its model_max_length, where ms-swift would leave the row out.
/// Source: LLaVA train.py DataCollatorForSupervisedDataset, MiniCPM-V finetune/dataset.py preprocess, and scripts of their kind.
bool Translator::cuts_ends() const {
  if (!trains() && verb_ != "eval") return false;
  if (stack_ == Stack::kTrainer) return given("model_max_length") != nullptr;
  return stack_ == Stack::kLlava || stack_ == Stack::kMiniCpm;
}

void Translator::add_default(const std::string& own, const std::string& value) {
  out_.unsaid.insert("--" + own);
  meanings_[own] = {{value}, ""};
  order_.push_back(own);
  out_.understood.push_back(
      {"", shown_flag(own, {value}), "what " + stack_name(stack_) + " does where nothing is said"});
}

/// LLaMA-Factory names the steps that a warmup_stable_decay does not: how many they are is known when all steps are.
/// Source: LLaMA-Factory 0.9.5, train/trainer_utils.py create_custom_scheduler.
void Translator::add_schedule_parts() {
  if (stack_ != Stack::kLlamaFactory || !has_("lr_scheduler_kwargs") ||
      !means("lr_scheduler_type", "warmup_stable_decay"))
    return;
  const auto at = meanings_.find("lr_scheduler_kwargs");
  const bool none = at == meanings_.end() || at->second.values.empty();
  Json shape = none ? Json::object() : parse_json_or_discard(at->second.values[0]);
  if (!shape.is_object()) return;  // which is refused where it is read
  std::string added;
  for (const auto& [name, part] : {std::pair{"num_stable_steps", "third"}, {"num_decay_steps", "two_thirds"}}) {
    if (shape.contains(name)) continue;
    shape[name] = part;
    added += fmt::format("{}{} {}", added.empty() ? "" : ", ", name, part);
  }
  if (none) return add_default("lr_scheduler_kwargs", shape.dump());
  at->second.values = {shape.dump()};
  if (!added.empty()) {
    out_.understood.push_back(
        {"", "of --lr_scheduler_kwargs " + added, "what LLaMA-Factory does where nothing is said"});
  }
}

void Translator::tell_version_2() {
  if (stack_ != Stack::kSwift || verb_ != "sft" || !speaks_version_2()) return;
  std::string unlike;
  for (const auto& [own, was] : {std::pair{"num_train_epochs", "1 epoch"},
                                 {"max_length", "2048 tokens"},
                                 {"warmup_ratio", "a warm-up of 0.05"}}) {
    if (!said(own)) unlike += (unlike.empty() ? "" : ", ") + std::string(was);
  }
  if (!unlike.empty()) {
    out_.understood.push_back({"", unlike,
                               "what ms-swift 2, whose words these are, did where nothing is said; what "
                               "version 4 does is done here (3 epochs, no limit, none)"});
  }
}

void Translator::add_defaults() {
  Defaults defaults = stack_defaults(stack_, verb_, adapts());
  if (cuts_texts()) std::ranges::find(defaults, "truncation_strategy", &Defaults::value_type::first)->second = "split";
  if (given_truth("predict_with_generate", false)) {
    for (auto& one : answer_defaults(stack_)) defaults.push_back(std::move(one));
  }
  if (stack_ == Stack::kLlamaFactory && std::filesystem::exists("data/dataset_info.json")) {
    defaults.emplace_back("dataset_dir", "data");
  }
  // It goes on with what its folder holds, unless it was to be written over.
  if (stack_ == Stack::kLlamaFactory && verb_ == "sft" && !given_truth("overwrite_output_dir", false))
    defaults.emplace_back("resume_from_checkpoint", "auto");
  if (stack_ == Stack::kLlamaFactory && adapts()) {  // twice the rank
    const auto rank = meanings_.find("lora_rank");
    if (const auto alpha = twice(rank == meanings_.end() ? "8" : rank->second.values[0])) {
      defaults.emplace_back("lora_alpha", *alpha);
    }
  }
  if (stack_ == Stack::kLlamaFactory && has_("media_default")) add_media_defaults();
  if (stack_ != Stack::kSwift && means("eval_strategy", "steps")) {  // at the steps that are logged
    const auto logged = meanings_.find("logging_steps");
    defaults.emplace_back("eval_steps", logged == meanings_.end() ? "500" : logged->second.values[0]);
  }
  tell_version_2();
  const bool new_adapter = adapts() && !said("adapters");  // one that is gone on with is as it is
  if (stack_ == Stack::kMiniCpm && new_adapter && !said("target_modules") && !said("target_regex")) {
    defaults.emplace_back("target_regex", R"(llm\..*layers\.\d+\.self_attn\.(q_proj|k_proj|v_proj))");
  }
  add_schedule_parts();
  if (cuts_ends()) defaults.emplace_back("truncation_strategy", "right");
  for (const auto& [own, value] : defaults) {
    if (!has_(own) || said(own) || (own.starts_with("lora_") && !new_adapter)) continue;
    add_default(own, value);
  }
}

/// Beside what files and the environment say.
void Translator::add_media_defaults() {
  std::string all;
  for (const auto& [name, value] : {std::pair{"MEDIA_AS", "llama_factory"},
                                    {"MIN_PIXELS", "1024"},
                                    {"VIDEO_MIN_PIXELS", "256"},
                                    {"VIDEO_MAX_PIXELS", "65536"},
                                    {"FPS", "2.0"},
                                    {"FPS_MAX_FRAMES", "128"},
                                    {"VIDEO_MAX_SLICE_NUMS", "2"}}) {
    const bool said = std::ranges::any_of(
        variables_, [name = name](const std::string& one) { return one.starts_with(std::string(name) + "="); });
    if (said) continue;
    media_defaults_.push_back(fmt::format("{}={}", name, value));
    all += (all.empty() ? "" : " ") + media_defaults_.back();
  }
  if (!all.empty())
    out_.understood.push_back({"", all, "what LLaMA-Factory does with pictures and films where nothing is said"});
}

}  // namespace lockstep
