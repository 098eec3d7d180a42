// Rows: where they come from, how long they are, how their media are scaled, how batches are made of them.
#include <set>

#include <fmt/format.h>

#include "lockstep/base/text_format.h"
#include "lockstep/dialect/flag_value.h"
#include "lockstep/dialect/translator.h"

namespace lockstep {
namespace {

/// LLaMA-Factory names several in one word.
void dataset(Translator& at) {
  if (at.verb() == "eval" && at.stack() == Stack::kLlamaFactory) {  // there it is for training
    if (at.given("eval_dataset") != nullptr) return at.note("it is for training: rows are those of --eval_dataset");
    at.refuse("it is for training, and nothing says which rows are measured",
              "--eval_dataset NAMES; rows that --val_size keeps apart are measured while training");
  }
  at.mean("dataset", at.stack() == Stack::kLlamaFactory ? comma_list(at.values()) : at.values());
}

void val_names(Translator& at) { at.mean("val_dataset", comma_list(at.values())); }

/// LLaMA-Factory fetches them where the folder is one of these words.
void dataset_dir(Translator& at) {
  if (at.value() == "ONLINE" || at.value().starts_with("REMOTE:")) {
    at.refuse("data sets are local files", "--dataset_dir DIR, a folder with dataset_info.json");
  }
  at.mean("dataset_dir", at.values());
}

void sample_count(Translator& at) {
  if (at.value().starts_with('-')) return at.note("all rows are taken");
  const bool trains = at.flag().name == "train_dataset_sample";
  at.refuse("rows are counted by file", fmt::format("--{} FILE#{}", trains ? "dataset" : "val_dataset", at.value()));
}

void truncation(Translator& at) {
  if (at.value() == "split" && !at.trains() && at.verb() != "eval")
    at.refuse("rows are cut into several where their loss is asked for", "--truncation_strategy right or left");
  at.mean("truncation_strategy", {at.value() == "truncation_left" ? "left" : at.value()});  // as ms-swift 2 has it
}

/// The template's own message cannot be taken away: an empty one would be written as such.
void system_message(Translator& at) {
  if (!at.value().empty()) return at.mean("system", at.values());
  at.note("rows without a system message get the one that the chat template writes by itself, where it does");
}

/// Source: LLaMA-Factory 0.9.5, data/template.py: of the families here these have a default_system that their checkpoints'
/// templates have not.
void template_name(Translator& at) {
  static const std::set<std::string> kWithSystem{"llava",     "llava_next", "vicuna",
                                                 "intern_vl", "minicpm_v",  "minicpm_o"};
  if (!kWithSystem.contains(at.value()) || at.given("default_system") != nullptr)
    return at.note("the chat template of the checkpoint is used");
  at.note(
      "the chat template of the checkpoint is used; LLaMA-Factory's puts a system message of its own in front of rows "
      "that have none: --default_system says one");
}

/// Of prompt and answer together, where answers are generated.
void answer_length(Translator& at) { at.note("--max_new_tokens bounds answers, --cutoff_len or --max_length rows"); }

void rescale_image(Translator& at) {
  if (at.value().starts_with('-')) return at.note("pictures keep their size");
  at.mean("max_pixels", at.values());
}

/// LLaMA-Factory scales before the model's own processor does.
void media_size(Translator& at) {
  const std::string& name = at.flag().name;
  if (name == "image_max_pixels") return at.mean("max_pixels", at.values());
  if (name == "image_min_pixels") return at.mean_variable("MIN_PIXELS", at.value());
  if (name == "video_max_pixels") return at.mean_variable("VIDEO_MAX_PIXELS", at.value());
  if (name == "video_min_pixels") return at.mean_variable("VIDEO_MIN_PIXELS", at.value());
  if (name == "video_fps") return at.mean_variable("FPS", at.value());
  at.mean_variable("FPS_MAX_FRAMES", at.value());  // video_maxlen
}

/// Source: LLaMA-Factory 0.9.5, data/mm_plugin.py InternVLPlugin.
void crop_to_patches(Translator& at) {
  if (!at.truth()) return at.note("a picture is one tile");
  at.mean_variable("MAX_NUM", "12");
}

void variable(Translator& at) {
  if (at.flag().name == "max_slice_nums") return at.mean_variable("MAX_SLICE_NUMS", at.value());
  at.mean_variable("USE_AUDIO_IN_VIDEO", at.truth() ? "True" : "False");
}

void packing(Translator& at) {
  if (at.flag().name == "neat_packing" && !at.truth()) return at.note("rows that are packed never see each other");
  at.mean("packing", at.values());
}

void packing_strategy(Translator& at) {
  at.mean("packing_strategy", {at.value() == "binpack" ? "best_fit" : at.value()});
}

void sampling_strategy(Translator& at) {
  const std::string word = at.value();
  if (word == "random") return at.note("rows come in a random order as it is");
  if (word == "group_by_length") return at.mean("group_by_length", {"true"});
  if (word == "sequential") return at.mean("dataset_shuffle", {"false"});
  at.refuse("expected random, sequential or group_by_length");
}

/// There the rows are drawn once when they are read, and by the loader for each epoch; here for each epoch, or not at all.
void loader_order(Translator& at) {
  at.mean("dataset_shuffle", at.values(),
          at.truth() ? "" : "rows come in the order of their files, which ms-swift draws once before");
}

/// LLaVA's conversations: one is of its first stage, the usual ones are what rows are spelled by anyway.
void conversation(Translator& at) {
  const std::string& name = at.value();
  if (name == "plain" || name == "v0_plain") return at.mean("conversation", {"plain"});
  const std::set<std::string> usual = {"v1", "vicuna_v1", "llava_v1", "mistral_instruct"};
  if (usual.contains(name))
    return at.note("rows are spelled by the model's own chat template, else by that of its kind");
  at.refuse("this conversation is not built",
            "--version v1, or plain; or give the model's folder a chat_template.jinja");
}

/// An empty one in infer would take away what a chat template puts in front of answers.
void response_prefix(Translator& at) {
  if (lowered(at.value()) == "none" || (at.value().empty() && at.verb() != "infer"))
    return at.note("it is what is done");
  at.refuse("it is not built", "put the beginning into the rows");
}

void use_loss_scale(Translator& at) {
  if (!at.truth()) return at.note("every trained token counts alike");
  at.refuse("weights by rules are not built", "a turn of a row may hold \"loss_scale\"");
}

void train_on_prompt(Translator& at) {
  if (!at.truth()) return at.note("prompts are not trained as it is");
  at.mean("loss_scale", {"all"});
}

void mask_history(Translator& at) {
  if (!at.truth()) return at.note("every answer is trained as it is");
  at.mean("loss_scale", {"last_answer"});
}

}  // namespace

const std::map<std::string, Rule>& row_rules() {
  static const std::map<std::string, Rule> rules = {{"dataset", dataset},
                                                    {"val_names", val_names},
                                                    {"dataset_dir", dataset_dir},
                                                    {"template_name", template_name},
                                                    {"crop_to_patches", crop_to_patches},
                                                    {"packing_strategy", packing_strategy},

                                                    {"sample_count", sample_count},
                                                    {"truncation", truncation},
                                                    {"system", system_message},
                                                    {"answer_length", answer_length},
                                                    {"rescale_image", rescale_image},
                                                    {"media_size", media_size},
                                                    {"variable", variable},
                                                    {"packing", packing},
                                                    {"sampling_strategy", sampling_strategy},
                                                    {"loader_order", loader_order},
                                                    {"conversation", conversation},
                                                    {"response_prefix", response_prefix},
                                                    {"use_loss_scale", use_loss_scale},
                                                    {"train_on_prompt", train_on_prompt},
                                                    {"mask_history", mask_history}};
  return rules;
}

}  // namespace lockstep
