// The model, its dtype, its codes of few bits.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"
#include "lockstep/dialect/flag_value.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

/// "" for what a stack works out by itself.
std::string dtype_word(std::string word) {
  word = lowered(std::move(word));
  if (word.starts_with("torch.")) word = word.substr(6);
  if (word == "auto" || word.empty()) return "";
  return word == "bf16" ? "bfloat16" : word == "fp16" || word == "half" ? "float16" : word == "fp32" ? "float32" : word;
}

/// Beside adapters new rows would never learn. Source: LLaMA-Factory 0.9.5, model/adapter.py, of resize_vocab, which new tokens imply.
void save_tables(Translator& at) {
  const GivenFlag* type = at.given("finetuning_type");
  const bool lora = type == nullptr || type->values == std::vector<std::string>{"lora"};
  if (at.trains() && lora && at.given("additional_target") == nullptr)
    at.mean("modules_to_save", {"embed_tokens", "lm_head"}, "new tokens learn beside adapters");
}

/// Source: LLaMA-Factory 0.9.5, model_utils/embedding.py.
void add_special_tokens(Translator& at) {
  at.mean("new_special_tokens", comma_list(at.values()),
          "rows that the tables have not begin as the mean of the others, and are rounded up to a multiple of 128; "
          "LLaMA-Factory adds noise, and rounds up to 64");
  save_tables(at);
}

void resize_vocab(Translator& at) {
  if (at.truth()) save_tables(at);
  at.note("the tables get rows where --add_special_tokens needs them, and only then");
}

/// ckpt_dir was a checkpoint of either kind.
void model(Translator& at) {
  const bool adapter = std::filesystem::exists(std::filesystem::path(at.value()) / "adapter_config.json");
  at.mean(adapter ? "adapters" : "model", at.values());
}

void adapter_list(Translator& at) {
  const auto folders = comma_list(at.values());
  if (folders.size() > 1) {
    at.refuse("adapters one over the other are not built",
              "merge the first: lockstep export --adapters DIR --merge_lora true, and give its folder as the model");
  }
  at.mean("adapters", folders);
}

void torch_dtype(Translator& at) {
  if (at.flag().name == "infer_dtype" && at.trains()) return at.note("it is of answers, and no part of a training");
  const std::string word = dtype_word(at.value());
  if (!word.empty()) at.mean("torch_dtype", {word});
}

/// bf16, fp16: the dtype where no other flag says it.
void half(Translator& at) {
  const std::string dtype = at.flag().name == "fp16" ? "float16" : "bfloat16";
  for (const std::string other : {"torch_dtype", "dtype", "infer_dtype"}) {
    const GivenFlag* said = at.trains() && other == "infer_dtype" ? nullptr : at.given(other);
    if (said == nullptr || said->values.empty() || dtype_word(said->values[0]).empty()) continue;
    return at.note(fmt::format("--{} says what is computed in", other));
  }
  if (at.truth()) return at.mean("torch_dtype", {dtype});
  at.note("the dtype is that of config.json, or of another flag");
}

/// In whatever spelling; AUTO and None are what is done.
void lora_dtype(Translator& at) {
  const std::string word = dtype_word(at.value());
  if (word.empty()) return at.note("adapters are kept and trained in float32");
  at.mean("lora_dtype", {word});
}

/// Of what is trained it changes no number; a folder of codes is written in one way.
void quant_storage(Translator& at) {
  const std::string dtype = dtype_word(at.value());
  const bool known = dtype == "uint8" || dtype == "bfloat16" || dtype == "float16" || dtype == "float32";
  if (dtype.empty() || (known && at.verb() != "export")) return at.note("codes are kept and gathered as bytes");
  at.mean("bnb_4bit_quant_storage", {dtype});
}

void device_max_memory(Translator& at) {
  std::string all;
  for (size_t i = 0; i < at.values().size(); ++i) {
    all += fmt::format("{}{}:{}", i == 0 ? "" : ",", i, at.values()[i]);
  }
  if (!all.empty()) at.mean("max_memory", {all});
}

/// {"fps_max_frames": 12}: variables of the environment.
void model_kwargs(Translator& at) {
  const Json json = literal_from(at.value());
  if (!json.is_object()) at.refuse("expected {\"name\": value}", "--model_kwargs '{\"fps_max_frames\": 12}'");
  for (const auto& [name, value] : json.items()) {
    at.mean_variable(upper(name), value.is_string() ? value.get<std::string>() : value.dump());
  }
}

void quantization_bit(Translator& at) {
  if (at.value() == "0") return at.note("it says that nothing is quantised");
  at.mean("quant_method", {"bnb"});
  at.mean("quant_bits", at.values());
}

void compute_dtype(Translator& at) {
  const std::string word = dtype_word(at.value());
  if (!word.empty()) at.mean("bnb_4bit_compute_dtype", {word});
}

void unfreeze_tower(Translator& at) { at.mean("freeze_vit", {is_true(at.value()) ? "false" : "true"}); }

void llava_truth(Translator& at) {
  if (at.flag().name == "freeze_mm_mlp_adapter") return at.mean("freeze_aligner", at.values());
  at.note("it stands in config.json");
}

}  // namespace

const std::map<std::string, Rule>& model_rules() {
  static const std::map<std::string, Rule> rules = {{"model", model},
                                                    {"add_special_tokens", add_special_tokens},
                                                    {"resize_vocab", resize_vocab},
                                                    {"adapter_list", adapter_list},
                                                    {"torch_dtype", torch_dtype},
                                                    {"half", half},
                                                    {"quant_storage", quant_storage},
                                                    {"device_max_memory", device_max_memory},
                                                    {"model_kwargs", model_kwargs},
                                                    {"quantization_bit", quantization_bit},
                                                    {"compute_dtype", compute_dtype},
                                                    {"unfreeze_tower", unfreeze_tower},
                                                    {"lora_dtype", lora_dtype},
                                                    {"llava_truth", llava_truth}};
  return rules;
}

}  // namespace lockstep
