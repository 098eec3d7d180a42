#include "lockstep/dialect/stack.h"

#include <algorithm>

namespace lockstep {
namespace {

bool any_given(const std::vector<GivenFlag>& flags, const std::vector<std::string>& names) {
  return std::ranges::any_of(flags,
                             [&](const GivenFlag& flag) { return std::ranges::find(names, flag.name) != names.end(); });
}

const std::vector<std::string>& marks_of(Stack stack) {
  static const std::vector<std::string> kNone;
  static const std::vector<std::string> kLlavaMarks = {
      "tune_mm_mlp_adapter",     "mm_projector_type",   "mm_vision_select_layer", "lora_enable",
      "pretrain_mm_mlp_adapter", "mm_use_im_start_end", "image_folder",           "mm_projector_lr"};
  static const std::vector<std::string> kMiniCpmMarks = {"llm_type", "tune_vision", "tune_llm", "use_lora",
                                                         "max_slice_nums"};
  static const std::vector<std::string> kLlamaFactoryMarks = {
      "finetuning_type",      "stage",           "template",      "cutoff_len", "dataset_dir", "export_dir",
      "adapter_name_or_path", "dataset",         "infer_backend", "media_dir",  "lora_target", "quantization_bit",
      "max_new_tokens",       "image_max_pixels"};
  if (stack == Stack::kLlava) return kLlavaMarks;
  if (stack == Stack::kMiniCpm) return kMiniCpmMarks;
  return stack == Stack::kLlamaFactory ? kLlamaFactoryMarks : kNone;
}

}  // namespace

std::string stack_tag(Stack stack) {
  switch (stack) {
    case Stack::kSwift:
      return "swift";
    case Stack::kTrainer:
      return "hf";
    case Stack::kLlamaFactory:
      return "lf";
    case Stack::kLlava:
      return "llava";
    case Stack::kMiniCpm:
      return "minicpm";
  }
  return "";
}

std::string stack_name(Stack stack) {
  switch (stack) {
    case Stack::kSwift:
      return "ms-swift";
    case Stack::kTrainer:
      return "the HF Trainer";
    case Stack::kLlamaFactory:
      return "LLaMA-Factory";
    case Stack::kLlava:
      return "LLaVA";
    case Stack::kMiniCpm:
      return "MiniCPM-V";
  }
  return "";
}

Stack recognise_stack(const std::vector<GivenFlag>& flags) {
  if (any_given(flags, {"model", "model_id_or_path", "adapters", "ckpt_dir"})) return Stack::kSwift;
  if (!any_given(flags, {"model_name_or_path", "adapter_name_or_path"})) return Stack::kSwift;
  // Qwen-VL's script has words of LLaVA's beside its own.
  if (any_given(flags, {"tune_mm_llm", "tune_mm_mlp", "tune_mm_vision", "dataset_use"})) return Stack::kTrainer;
  for (const Stack stack : {Stack::kLlava, Stack::kMiniCpm, Stack::kLlamaFactory}) {
    if (any_given(flags, marks_of(stack))) return stack;
  }
  return Stack::kTrainer;
}

Defaults answer_defaults(Stack stack) {
  if (stack != Stack::kLlamaFactory) return {};
  return {{"max_new_tokens", "1024"},
          {"temperature", "0.95"},
          {"top_p", "0.7"},
          {"top_k", "50"},
          {"skip_special_tokens", "true"}};
}

Defaults stack_defaults(Stack stack, const std::string& verb, bool adapts) {
  if (stack == Stack::kSwift) return {};
  if (verb == "infer" && stack == Stack::kLlamaFactory) {
    Defaults out = answer_defaults(stack);
    out.emplace_back("max_pixels", "589824");
    return out;
  }
  // Source: transformers 5.23.0, TrainingArguments, and what each stack's own arguments say otherwise.
  Defaults out = {{"learning_rate", "5e-5"},
                  {"lr_scheduler_type", "linear"},
                  {"weight_decay", "0"},
                  {"adam_beta2", "0.999"},
                  {"per_device_train_batch_size", "8"},
                  {"per_device_eval_batch_size", "8"},
                  {"gradient_accumulation_steps", "1"},
                  {"gradient_checkpointing", "false"},
                  {"logging_steps", "500"},
                  {"logging_first_step", "false"},
                  {"save_steps", "500"},
                  {"eval_strategy", "no"},
                  {"add_version", "false"},
                  {"tuner_type", "full"}};
  const auto say = [&](const std::string& name, const std::string& value) {
    const auto at = std::ranges::find(out, name, &std::pair<std::string, std::string>::first);
    if (at == out.end()) return out.emplace_back(name, value), void();
    at->second = value;
  };
  if (stack == Stack::kLlamaFactory) {
    say("tuner_type", "lora");
    say("max_length", "2048");
    say("truncation_strategy", "turns");
    say("max_pixels", "589824");
    say("gradient_checkpointing", "true");
    say("lora_dropout", "0");
    say("freeze_vit", "true");
    say("freeze_aligner", "true");
    if (verb == "eval") say("predict_with_generate", "false");
  } else if (stack == Stack::kLlava) {
    say("max_length", "512");
    say("freeze_vit", "true");
    say("freeze_aligner", "false");
    say("lora_rank", "64");
    say("lora_alpha", "16");
  } else if (stack == Stack::kMiniCpm) {
    say("max_length", "2048");
    say("freeze_vit", adapts ? "true" : "false");
    say("freeze_aligner", adapts ? "true" : "false");
    say("lora_rank", "64");
    say("lora_alpha", "64");
  } else {
    say("freeze_vit", "false");
    say("freeze_aligner", "false");
  }
  return out;
}

}  // namespace lockstep
