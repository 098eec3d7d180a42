// What is trained, and by which steps.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "lockstep/dialect/flag_value.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

void finetuning_type(Translator& at) {
  const std::string word = at.value();
  if (word == "lora" || word == "full") return at.mean("tuner_type", {word});
  if (word != "freeze") at.refuse("is not built", "--finetuning_type lora, full or freeze");
  at.mean("tuner_type", {"full"});
  if (at.given("freeze_trainable_layers") == nullptr) {
    at.mean("freeze_trainable_layers", {"2"}, "the last two, as LLaMA-Factory has it");
  }
}

/// What finetuning_type freeze trains.
void freeze_layers(Translator& at) {
  const GivenFlag* type = at.given("finetuning_type");
  if (type == nullptr || type->values != std::vector<std::string>{"freeze"}) {
    return at.note("it belongs to finetuning_type freeze");
  }
  at.mean(at.flag().name, comma_list(at.values()));
}

void stage(Translator& at) {
  const std::string word = at.value();
  if (word == "sft") return at.note("it is what `lockstep sft` does");
  if (word == "pt") {
    at.mean("use_chat_template", {"false"}, "texts are learnt as they are");
    at.mean("loss_scale", {"all"}, "all of each");
    // Source: LLaMA-Factory's parser.py and pretrain.py; there texts lie behind one another in blocks, and end where a block does
    // (Translator::add_defaults).
    if (at.given("packing") == nullptr)
      at.mean("packing", {"true"}, "texts share rows of --max_length and never see each other");
    return;
  }
  at.refuse("rewards and preferences are not trained here", "--stage sft");
}

/// Source: LLaVA's train.py: adapters on the language model, the projector whole.
void lora_enable(Translator& at) {
  if (at.stack() != Stack::kMiniCpm) return at.mean("tuner_type", {at.truth() ? "lora_llm" : "full"});
  at.mean("tuner_type", {at.truth() ? "lora" : "full"});
  if (!at.truth()) return;
  // Source: MiniCPM-V's finetune.py: beside its adapters these are trained whole.
  std::vector<std::string> whole = {"embed_tokens", "resampler"};
  if (at.given_truth("tune_vision", true)) whole.emplace_back("vpm");
  at.mean("modules_to_save", whole);
}

/// ms-swift 2: ALL, DEFAULT, EMBEDDING among the names.
void target_names(Translator& at) {
  std::vector<std::string> names;
  for (const auto& word : comma_list(at.values())) {
    if (word == "ALL") {
      names.emplace_back("all-linear");
    } else if (word == "EMBEDDING") {
      names.emplace_back("all-embedding");
    } else if (word == "DEFAULT" || word == "AUTO") {
      names.insert(names.end(), {"q_proj", "k_proj", "v_proj"});
    } else {
      names.push_back(word);
    }
  }
  at.mean(at.flag().name == "lora_modules_to_save" ? "modules_to_save" : "target_modules", names);
}

void target_list(Translator& at) {
  std::vector<std::string> names = comma_list(at.values());
  std::ranges::replace(names, std::string("all"), std::string("all-linear"));
  at.mean("target_modules", names);
  // Source: LLaMA-Factory's patch_target_modules: names mean no module of a tower or projector that is frozen, and by default both are.
  if (names != std::vector<std::string>{"all-linear"}) at.mean("adapt_frozen", {"false"});
}

void save_list(Translator& at) { at.mean("modules_to_save", comma_list(at.values())); }

void init_weights(Translator& at) {
  const std::string word = at.value();
  at.mean("init_weights", {is_true(word) ? "true" : is_false(word) ? "false" : word});
}

void pissa_init(Translator& at) {
  if (!at.truth()) return at.note("adapters begin as they always do");
  at.mean("init_weights", {"pissa"});
}

/// Adapters of LLaMA-Factory's "all" never lie on the projector; those of names do, where it is not frozen.
void freeze(Translator& at) {
  const std::string& name = at.flag().name;
  const GivenFlag* type = at.given("finetuning_type");
  const bool adapts = type == nullptr || type->values == std::vector<std::string>{"lora"};
  const GivenFlag* target = at.given("lora_target");
  const bool all = target == nullptr || target->values == std::vector<std::string>{"all"};
  if (name == "freeze_multi_modal_projector" && adapts && all && !at.truth()) {
    return at.note("adapters do not lie on the projector: --additional_target trains it whole");
  }
  at.mean(name == "freeze_vision_tower"            ? "freeze_vit"
          : name == "freeze_multi_modal_projector" ? "freeze_aligner"
                                                   : "freeze_llm",
          at.values());
}

void tune_projector(Translator& at) {
  if (!at.truth()) return at.note("what is trained is said by other flags");
  at.mean("freeze_llm", {"true"});
  at.mean("freeze_vit", {"true"});
  at.mean("freeze_aligner", {"false"});
}

void scheduler(Translator& at) {
  const std::string word = at.value().starts_with("SchedulerType.") ? at.value().substr(14) : at.value();
  at.mean("lr_scheduler_type", {word});
}

/// Below 1 it is a part of the steps.
void warmup(Translator& at) {
  const double steps = std::stod(at.value());
  if (steps <= 0) {
    return at.note(at.given("warmup_ratio") == nullptr ? "there is no warm-up" : "--warmup_ratio says how long it is");
  }
  at.mean(steps < 1 ? "warmup_ratio" : "warmup_steps", at.values());
}

/// Names of transformers' for one AdamW, by what computes it.
void optim(Translator& at) {
  static constexpr std::array kSame = {"adamw_torch", "adamw_torch_fused", "adamw_hf",
                                       "adamw",       "adamw_torch_xla",   "adamw_torch_npu_fused"};
  const std::string word = at.value();
  if (std::ranges::find(kSame, word) != kSame.end()) return at.note("it is what is done");
  const bool paged = word == "paged_adamw_32bit" || word == "paged_adamw";
  if (paged) return at.note("it is AdamW, whose moments are not paged: --offload optimizer keeps them in host memory");
  at.refuse("AdamW is the one optimizer: --offload optimizer or --deepspeed zero3 where its moments do not fit");
}

void find_batch(Translator& at) {
  if (!at.truth()) return at.note("the batch is as it is given");
  if (at.given("per_device_train_batch_size") != nullptr) {
    return at.note("a batch that does not fit is split: --memory_limit says what there is");
  }
  at.mean("per_device_train_batch_size", {"auto"});
}

}  // namespace

const std::map<std::string, Rule>& training_rules() {
  static const std::map<std::string, Rule> rules = {{"finetuning_type", finetuning_type},
                                                    {"stage", stage},
                                                    {"lora_enable", lora_enable},
                                                    {"target_names", target_names},
                                                    {"target_list", target_list},
                                                    {"save_list", save_list},
                                                    {"init_weights", init_weights},
                                                    {"pissa_init", pissa_init},
                                                    {"freeze", freeze},
                                                    {"freeze_layers", freeze_layers},
                                                    {"tune_projector", tune_projector},
                                                    {"scheduler", scheduler},
                                                    {"warmup", warmup},
                                                    {"optim", optim},
                                                    {"find_batch", find_batch}};
  return rules;
}

}  // namespace lockstep
