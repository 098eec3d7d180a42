#include "lockstep/tasks/unheeded.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"

namespace lockstep {
namespace {

class Unheeded {
 public:
  /// `unsaid`: flags of which nothing is told, since nobody gave them.
  explicit Unheeded(const std::set<std::string>& unsaid) : unsaid_(unsaid) {}

  std::vector<std::string> words;

  /// Of the flags that follow: whether anything reads them, and why not.
  void unless(bool heeded, std::string why) {
    heeded_ = heeded;
    why_ = std::move(why);
  }
  template <typename Value>
  void look(const char* flag, const Value& said, const Value& usual) {
    if (!(said == usual)) look_at(fmt::format("{} {}", flag, said));
  }
  void look_at(const std::string& said) {
    if (heeded_ || unsaid_.contains(said.substr(0, said.find(' ')))) return;
    words.push_back(fmt::format("{} has no effect: {}", said, why_));
  }

 private:
  const std::set<std::string>& unsaid_;
  bool heeded_ = true;
  std::string why_;
};

std::string short_value(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return text.size() > 40 ? text.substr(0, 37) + "..." : text;
}

bool is_number(const Json& config, const char* name) { return config.contains(name) && config[name].is_number(); }

/// Of generation_config.json, and not of ours.
constexpr const char* kUnbuilt[] = {"num_beams",
                                    "encoder_repetition_penalty",
                                    "min_length",
                                    "min_new_tokens",
                                    "suppress_tokens",
                                    "begin_suppress_tokens",
                                    "bad_words_ids",
                                    "sequence_bias",
                                    "forced_bos_token_id",
                                    "forced_eos_token_id",
                                    "exponential_decay_length_penalty",
                                    "typical_p",
                                    "epsilon_cutoff",
                                    "eta_cutoff",
                                    "guidance_scale",
                                    "penalty_alpha",
                                    "num_return_sequences",
                                    "top_h",
                                    "watermarking_config",
                                    "max_time",
                                    "force_words_ids",
                                    "constraints"};

/// What a model's own file says of how its answers are found, beside where they end: a person says it by flags.
void look_at_generation_config(Unheeded& all, const std::filesystem::path& model, const SamplingOptions& o,
                               int64_t max_new_tokens, int64_t usual_tokens) {
  std::error_code ignored;
  std::filesystem::path file = model / "generation_config.json";
  if (!std::filesystem::exists(file, ignored)) file = model / "config.json";  // where older models say it
  const Json config = std::filesystem::exists(file, ignored) ? read_json(file) : Json::object();
  if (!config.is_object()) return;
  std::vector<std::string> said, flags, unbuilt;
  bool by_default = false;
  const auto look = [&](const char* name, double usual, bool given, double unsaid) {
    const auto at = config.find(name);
    const bool stands = is_number(config, name);
    if (given || (stands ? at->get<double>() : unsaid) == usual) return;
    by_default = by_default || !stands;
    if (stands) said.push_back(fmt::format("{} {}", name, short_value(*at)));
    flags.push_back(stands ? fmt::format("--{} {}", name, short_value(*at)) : fmt::format("--{} {:g}", name, unsaid));
  };
  const bool says_length = max_new_tokens != usual_tokens;
  const auto tokens = static_cast<double>(usual_tokens);
  look("max_new_tokens", tokens, says_length, tokens);
  look("repetition_penalty", 1, o.repetition_penalty != 1, 1);
  look("no_repeat_ngram_size", 0, o.no_repeat_ngram_size != 0, 0);
  if (config.value("do_sample", Json(false)) == Json(true) || o.temperature > 0) {
    // What transformers 5.23 takes where the file does not say it.
    look("temperature", 0, o.temperature > 0, 1);
    look("top_p", 1, o.top_p != 1, 1);
    look("min_p", 0, o.min_p != 0, 0);
    look("top_k", 0, o.top_k != 0, o.temperature > 0 ? 0 : 50);
    if (by_default) said.insert(said.begin(), "do_sample true");
  }
  if (o.temperature > 0 && o.top_k == 0 && !is_number(config, "top_k")) {
    all.words.push_back(
        fmt::format("--temperature {:g} draws among all tokens, where transformers takes the 50 likeliest: --top_k 50 "
                    "does as it does",
                    o.temperature));
  }
  const std::set<std::string_view> off_at_one{"num_beams", "encoder_repetition_penalty", "typical_p", "guidance_scale",
                                              "num_return_sequences"};
  for (const char* name : kUnbuilt) {
    const auto at = config.find(name);
    if (at == config.end() || at->is_null() || at->empty()) continue;
    if (at->is_number() && at->get<double>() == (off_at_one.contains(name) ? 1 : 0)) continue;
    unbuilt.push_back(fmt::format("{} {}", name, short_value(*at)));
  }
  if (!says_length && !is_number(config, "max_new_tokens") && is_number(config, "max_length")) {
    all.words.push_back(fmt::format("max_length {} of {} has no effect: an answer has --max_new_tokens {} at most",
                                    short_value(config["max_length"]), file.filename().string(), max_new_tokens));
  }
  const std::string whose = fmt::format("of {} has no effect:", file.filename().string());
  if (!said.empty()) {
    all.words.push_back(fmt::format("{} {} {} does as it says", join(said, ", "), whose, join(flags, " ")));
  }
  const Json stops = config.value("stop_strings", Json());
  if (!stops.empty() && o.stop_words.empty()) {
    all.words.push_back(fmt::format("stop_strings {} {} --stop_words does as it says", short_value(stops), whose));
  }
  if (!unbuilt.empty()) all.words.push_back(fmt::format("{} {} it is not built", join(unbuilt, ", "), whose));
}

/// Of answers, how each token is found.
void look_at_sampling(Unheeded& all, const SamplingOptions& o) {
  const SamplingOptions usual;
  all.unless(o.temperature > 0, "the likeliest token is taken (--temperature 0.7 draws)");
  all.look("--top_k", o.top_k, usual.top_k);
  all.look("--top_p", o.top_p, usual.top_p);
  all.look("--min_p", o.min_p, usual.min_p);
}

/// Of a run that makes answers or not.
void look_at_answers(Unheeded& all, bool made, int64_t max_new_tokens, int64_t usual_tokens, const SamplingOptions& o) {
  const SamplingOptions usual;
  if (made) look_at_sampling(all, o);
  all.unless(made, "no answers are made (--predict_with_generate true)");
  all.look("--max_new_tokens", max_new_tokens, usual_tokens);
  all.look("--temperature", o.temperature, usual.temperature);
  all.look("--top_k", o.top_k, usual.top_k);
  all.look("--top_p", o.top_p, usual.top_p);
  all.look("--min_p", o.min_p, usual.min_p);
  all.look("--repetition_penalty", o.repetition_penalty, usual.repetition_penalty);
  all.look("--no_repeat_ngram_size", o.no_repeat_ngram_size, usual.no_repeat_ngram_size);
  if (!o.stop_words.empty()) all.look_at("--stop_words " + join(o.stop_words, " "));
  all.look("--skip_special_tokens", o.skip_special_tokens, usual.skip_special_tokens);
}

void look_at_programs(Unheeded& all, const MetricOptions& o) {
  all.unless(!o.programs.empty(), "it is of programs that measure (--metric ./my_metric.py)");
  all.look("--metric_timeout", o.timeout_s, MetricOptions{}.timeout_s);
}

void look_at_search(Unheeded& all, const BatchSize& batch) {
  all.unless(batch.is_auto(), "it is of a batch size that is searched for (auto)");
  all.look("--memory_fraction", batch.memory_fraction, BatchSize{}.memory_fraction);
}

bool takes_media(const Model& model) {
  const auto senses = [](Component c) { return c == Component::kVision || c == Component::kAudio; };
  return std::ranges::any_of(model.blocks, [&](const auto& block) { return senses(block->component()); }) ||
         std::ranges::any_of(model.left_out, [&](const auto& left) { return senses(left.component); });
}

const char* unit_word(BoxUnit unit) { return unit == BoxUnit::kPixels ? "none" : "norm1000"; }

void look_at_media(Unheeded& all, const RowOptions& rows, const Model& model) {
  all.unless(takes_media(model), "the model takes texts alone");
  all.look("--max_pixels", rows.media.shrink_to_pixels, MediaOptions{}.shrink_to_pixels);
  if (rows.media.box_unit != BoxUnit::kOfFamily)
    all.look_at(fmt::format("--norm_bbox {}", unit_word(rows.media.box_unit)));
}

/// Which is heeded, and may not come to what the person hopes for.
void look_at_length(Unheeded& all, int64_t max_length, const Model& model) {
  if (!passes_positions(model.dims, max_length)) return;
  all.words.push_back(fmt::format(
      "--max_length {} goes beyond the {} positions that the model was made for: what it says there may be of no use",
      max_length, model.dims.max_positions));
}

/// Of a run that trains nothing.
void look_at_rows(Unheeded& all, const RowOptions& rows, const Model& model) {
  all.unless(false, "nothing is learnt");
  if (rows.taught.of != Taught{}.of || !rows.taught.empty_thinking) all.look_at("--loss_scale");
  look_at_length(all, rows.max_length, model);
  look_at_media(all, rows, model);
}

void look_at_data(Unheeded& all, const FineTuneOptions& o) {
  const FineTuneOptions usual;
  all.unless(o.grouping.packing, "rows are put into no bins (--packing true)");
  all.look("--packing_strategy", o.grouping.packing_strategy, usual.grouping.packing_strategy);
  all.unless(o.grouping.streaming, "it is drawn from all rows (--streaming true)");
  all.look("--shuffle_buffer_size", o.grouping.shuffle_buffer_size, usual.grouping.shuffle_buffer_size);
  all.unless(o.dataset_shuffle || o.split_dataset_ratio > 0, "rows come in the order of their files");
  if (o.data_seed) all.look_at(fmt::format("--data_seed {}", *o.data_seed));
}

void look_at_evaluation(Unheeded& all, const FineTuneOptions& o) {
  const FineTuneOptions usual;
  all.unless(!o.val_dataset.empty() || o.split_dataset_ratio > 0, "no rows are evaluated (--val_dataset FILE)");
  all.look("--per_device_eval_batch_size", o.per_device_eval_batch_size, usual.per_device_eval_batch_size);
  all.look("--metric_for_best_model", o.metric_for_best_model, usual.metric_for_best_model);
  if (o.greater_is_better) all.look_at(fmt::format("--greater_is_better {}", *o.greater_is_better));
  if (o.eval_strategy == "end")
    all.unless(false, "the one evaluation comes behind the last step (--eval_strategy end)");
  all.look("--eval_delay", o.train.eval_delay, usual.train.eval_delay);
  look_at_answers(all, o.predict_with_generate, o.max_new_tokens, usual.max_new_tokens, o.sampling);
  if (o.predict_with_generate)
    look_at_generation_config(all, o.run.model, o.sampling, o.max_new_tokens, usual.max_new_tokens);
  look_at_programs(all, o.metric);
}

void look_at_trackers(Unheeded& all, const FineTuneOptions& o) {
  const LoggerOptions usual;
  all.unless(!o.loggers().empty(), "no tracker is fed (--report_to wandb)");
  all.look("--run_name", o.logger.name, usual.name);
  all.look("--project", o.logger.project, usual.project);
  for (const auto& [name, value] : o.logger.settings) all.look_at(fmt::format("--{} {}", name, value));
  if (std::ranges::find(o.report_to, "all") == o.report_to.end()) return;
  all.words.emplace_back(
      "--report_to all is tensorboard: trackers (wandb, swanlab, mlflow) are fed where they are named");
}

/// What scripts of models that see give models of text as well.
void look_at_towers(Unheeded& all, const FineTuneOptions& o, const Model& model) {
  look_at_media(all, o.rows, model);
  const auto look = [&](const char* flag, const std::optional<bool>& said) {
    if (said) all.look_at(fmt::format("{} {}", flag, *said));
  };
  look("--freeze_vit", o.components.freeze_vit);
  look("--freeze_aligner", o.components.freeze_aligner);
  look("--vit_gradient_checkpointing", o.vit_gradient_checkpointing);
}

}  // namespace

std::vector<std::string> unheeded_words(const FineTuneOptions& options, const Model& model) {
  const FineTuneOptions &o = options, usual;  // as args.json of another run says them
  Unheeded all(o.run.unsaid);
  if (const std::string words = o.tuner.unheeded(); !words.empty()) all.words.push_back(words);
  all.unless(o.run.adapters.empty(), "the adapter of --adapters has begun");
  all.look("--init_weights", o.tuner.lora.init, usual.tuner.lora.init);
  all.unless(o.tuner.loraplus_ratio != usual.tuner.loraplus_ratio, "it is of LoRA+ (--lorap_lr_ratio 16)");
  all.look("--lorap_emb_lr", o.tuner.table_rate, usual.tuner.table_rate);

  look_at_data(all, o);
  look_at_length(all, o.rows.max_length, model);
  look_at_towers(all, o, model);
  all.unless(o.rows.speaks, "no talker is trained");
  all.look("--talker_loss_weight", o.train.talker_loss_weight, usual.train.talker_loss_weight);
  all.unless(o.train.schedule != ScheduleKind::kConstant,
             "--lr_scheduler_type constant has no warm-up (constant_with_warmup has)");
  all.look("--warmup_steps", o.train.warmup_steps, usual.train.warmup_steps);
  all.look("--warmup_ratio", o.train.warmup_ratio, usual.train.warmup_ratio);
  all.unless(o.train.warmup_steps == 0 || o.train.schedule == ScheduleKind::kConstant,
             fmt::format("--warmup_steps {} counts", o.train.warmup_steps));
  all.look("--warmup_ratio", o.train.warmup_ratio, usual.train.warmup_ratio);
  if (!o.checkpoint_as_needed) look_at_search(all, o.batch);

  all.unless(o.saves(), "nothing is saved (--save_strategy no)");
  all.look("--save_total_limit", o.save_total_limit, usual.save_total_limit);
  all.look("--save_only_model", o.save_only_model, usual.save_only_model);
  all.look("--create_checkpoint_symlink", o.create_checkpoint_symlink, usual.create_checkpoint_symlink);
  all.unless(o.saves() && !o.tuner.adapts(), "no files of a whole model are saved");
  all.look("--max_shard_size", o.max_shard_bytes, usual.max_shard_bytes);
  look_at_evaluation(all, o);
  look_at_trackers(all, o);
  return all.words;
}

std::string unheeded_beginning(const FineTuneOptions& options, const LoraConfig& resumed) {
  const std::string& init = options.tuner.lora.init;
  if (!options.run.adapters.empty() || !options.tuner.given.contains("--init_weights") || init == resumed.init)
    return "";
  return fmt::format("--init_weights {} has no effect: the adapter of the checkpoint has begun, with {}", init,
                     resumed.init);
}

std::vector<std::string> unheeded_words(const EvaluationOptions& options, const Model& model) {
  const EvaluationOptions &o = options, usual;
  Unheeded all(o.run.unsaid);
  look_at_answers(all, o.generate, o.max_new_tokens, usual.max_new_tokens, o.sampling);
  if (o.generate) look_at_generation_config(all, o.run.model, o.sampling, o.max_new_tokens, usual.max_new_tokens);
  all.look("--show", o.show, usual.show);
  look_at_programs(all, o.metric);
  look_at_search(all, o.batch);
  look_at_length(all, o.rows.max_length, model);
  look_at_media(all, o.rows, model);
  return all.words;
}

std::vector<std::string> unheeded_words(const EmbeddingOptions& options, const Model& model) {
  Unheeded all(options.run.unsaid);
  look_at_search(all, options.batch);
  look_at_rows(all, options.rows, model);
  return all.words;
}

std::vector<std::string> unheeded_words(const AnswerFileOptions& options, const Model& model) {
  Unheeded all(options.run.unsaid);
  look_at_sampling(all, options.sampling);
  look_at_generation_config(all, options.run.model, options.sampling, options.max_new_tokens,
                            AnswerFileOptions{}.max_new_tokens);
  look_at_search(all, options.batch);
  look_at_rows(all, options.rows, model);
  return all.words;
}

std::vector<std::string> unheeded_in_talk(const AnswerFileOptions& options, const Model& model) {
  const AnswerFileOptions &o = options, usual;
  Unheeded all(o.run.unsaid);
  look_at_sampling(all, o.sampling);
  look_at_generation_config(all, o.run.model, o.sampling, o.max_new_tokens, usual.max_new_tokens);
  look_at_rows(all, o.rows, model);
  all.unless(false, "no file of rows is answered (--val_dataset rows.jsonl)");
  if (o.batch.is_auto()) {
    all.look_at("--max_batch_size auto");
  } else {
    all.look("--max_batch_size", o.batch.rows, usual.batch.rows);
  }
  all.look("--memory_fraction", o.batch.memory_fraction, usual.batch.memory_fraction);
  all.look("--overwrite", o.overwrite, usual.overwrite);
  all.look("--strict", o.rows.strict, usual.rows.strict);
  all.look("--max_samples", o.rows.max_samples, usual.rows.max_samples);
  all.look("--dataset_dir", o.rows.dataset_dir, usual.rows.dataset_dir);
  if (!o.rows.columns.empty()) all.look_at("--columns");
  if (!o.rows.infos.empty()) all.look_at(fmt::format("--custom_dataset_info {}", fmt::join(o.rows.infos, " ")));
  return all.words;
}

}  // namespace lockstep
