#include "lockstep/cli/train_flags.h"

#include <algorithm>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/batch_flags.h"
#include "lockstep/cli/component_flags.h"
#include "lockstep/cli/deepspeed_flags.h"
#include "lockstep/cli/flags.h"
#include "lockstep/cli/metric_flags.h"
#include "lockstep/cli/number_bounds.h"
#include "lockstep/cli/sampling_flags.h"
#include "lockstep/cli/verbs.h"
#include "lockstep/dialect/flag_value.h"
#include "lockstep/plan/flag_json.h"

namespace lockstep {
namespace {

const CLI::Validator& strategies() {
  static const CLI::Validator names = CLI::IsMember({"steps", "epoch", "no"});
  return names;
}

/// A count of steps; or a part of all, below 1, which goes to `part`, as does -1: once, at the end.
template <typename Steps>
CLI::Option* add_steps_flag(CLI::App& app, const char* name, Steps& steps, double& part, const std::string& standard,
                            const char* help) {
  const auto read = [&steps, &part](const std::string& text) -> std::string {
    const bool at_end = text == "-1", in_part = number_fault(text, {.above = 0, .below = 1}).empty();
    const std::string fault = at_end || in_part ? "" : whole_number_fault(text, 1, kMostCount);
    if (!fault.empty()) return fault + "; a part of all steps (0.1) and -1 (once, at the end) are taken too";
    part = at_end ? 1 : in_part ? std::stod(text) : 0;
    steps = at_end || in_part ? 1 : std::stoll(text);
    return {};
  };
  return add_word_flag(app, name, "N|PART", standard, help, read);
}

/// true, false, or auto: as far as memory makes it necessary.
std::string read_checkpointing(const std::string& text, FineTuneOptions& given) {
  given.checkpoint_as_needed = text == "auto";
  given.gradient_checkpointing = is_true(text) || given.checkpoint_as_needed;
  return given.gradient_checkpointing || is_false(text)
             ? ""
             : fmt::format("expected true, false or auto, found \"{}\"", text);
}

void add_grouping_flags(CLI::App& app, RowGrouping& grouping) {
  const char* group = "Data";
  const auto truth = [&](const char* name, bool& value, const char* what) {
    app.add_option(name, value, what)->capture_default_str()->group(group);
  };
  truth("--padding_free", grouping.padding_free, "the rows of a batch stand behind one another: no work on padding");
  truth("--packing", grouping.packing,
        "rows are put into bins of --packing_length tokens, which a batch counts in place of rows; padding_free");
  app.add_option("--packing_length", grouping.packing_length, "tokens of a bin; 0: as --max_length")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--packing_strategy", grouping.packing_strategy, "best_fit | sequential")
      ->check(CLI::IsMember({"best_fit", "sequential"}))
      ->capture_default_str()
      ->group(group);
  truth("--streaming", grouping.streaming,
        "files are read from one end to the other and rows not looked at before; needs --max_steps");
  app.add_option("--shuffle_buffer_size", grouping.shuffle_buffer_size, "rows among which a streamed one is drawn")
      ->check(whole_number(1))
      ->capture_default_str()
      ->group(group);
  truth("--group_by_length", grouping.group_by_length, "rows of about one length come together");
  truth("--group_by_modality_length", grouping.group_by_modality_length,
        "the same, rows with media and rows without in separate batches");
}

void add_data_flags(CLI::App& app, SftFlags& f) {
  app.add_option("--dataset", f.given.dataset, std::string(kRowFiles) + "; file#N takes N rows")->group("Data");
  app.add_option("--val_dataset", f.given.val_dataset, "files to evaluate on")->group("Data");
  app.add_option("--split_dataset_ratio", f.given.split_dataset_ratio,
                 "part of --dataset kept for evaluation, also in val_dataset.jsonl of the run folder; from 1 on a "
                 "number of rows")
      ->check(real_number({.least = 0}))
      ->capture_default_str()
      ->group("Data");
  add_row_flags(app, f.rows);
  app.add_option("--dataloader_drop_last", f.given.dataloader_drop_last,
                 "rows that fill no micro-batch of all ranks are left out of an epoch")
      ->capture_default_str()
      ->group("Data");
  add_grouping_flags(app, f.given.grouping);
  app.add_option("--data_seed", f.given.data_seed, "of the data order (default: --seed)")
      ->check(seed_number())
      ->group("Data");
  app.add_option("--dataset_shuffle", f.given.dataset_shuffle, "a new order each epoch")
      ->capture_default_str()
      ->group("Data");
}

void add_step_flags(CLI::App& app, SftFlags& f) {
  const auto not_negative = real_number({.least = 0});
  const auto part = real_number({.least = 0, .most = 1});
  const auto number = [&](const char* name, auto& value, const char* what, const CLI::Validator& check) {
    app.add_option(name, value, what)->check(check)->capture_default_str()->group("Training");
  };
  add_batch_flags(app, "--per_device_train_batch_size,--batch_size", "rows of a micro-batch on one rank", "Training",
                  f.given.batch);
  number("--per_device_eval_batch_size", f.given.per_device_eval_batch_size, "rows on one rank when evaluating",
         whole_number(1, kMostRowsAtOnce));
  app.add_option("--gradient_accumulation_steps", f.given.gradient_accumulation_steps,
                 "micro-batches of a step (default: so that a step has 16 rows)")
      ->check(whole_number(1, kMostRowsAtOnce))
      ->group("Training");
  number("--num_train_epochs", f.given.train.num_train_epochs, "times that each row is seen",
         real_number({.above = 0, .most = kMostEpochs}));
  app.add_option("--max_steps", f.given.train.max_steps, "steps, whatever the epochs; -1: by epochs")
      ->check(whole_number(-1))
      ->capture_default_str()
      ->group("Training");
  number("--max_epochs", f.given.train.max_epochs,
         "the run ends behind so many, also before --max_steps; 0: no such end",
         real_number({.least = 0, .most = kMostEpochs}));
  number("--loss_chunk", f.given.train.loss_chunk, "positions whose logits exist at once; on a GPU four times as many",
         whole_number(1));
  app.add_option("--reduce_dtype", f.reduce_dtype,
                 "float32 | bfloat16 | float16: of gradients on their way between ranks (default: as --torch_dtype)")
      ->group("Training");
  add_word_flag(app, "--gradient_checkpointing", "true|false|auto", "true",
                "recompute activations on the way back; auto: of as many blocks as memory makes necessary",
                [&f](const std::string& text) { return read_checkpointing(text, f.given); })
      ->group("Training");
  app.add_option("--vit_gradient_checkpointing", f.given.vit_gradient_checkpointing,
                 "the same for the vision tower (default: as above)")
      ->group("Training");
  app.add_option("--learning_rate", f.learning_rate, "the highest (default: 1e-5; of adapters 1e-4)")
      ->check(not_negative)
      ->group("Training");
  app.add_option("--lr_scheduler_type", f.lr_scheduler_type, join(schedule_names(), " | "))
      ->capture_default_str()
      ->group("Training");
  app.add_option("--lr_scheduler_kwargs", f.lr_scheduler_kwargs,
                 "what the schedule takes besides: \"{'num_cycles': 2}\", \"{'min_lr': 1e-6}\"")
      ->group("Training");
  number("--warmup_ratio", f.given.train.warmup_ratio, "part of the steps", part);
  number("--warmup_steps", f.given.train.warmup_steps, "steps, over --warmup_ratio", whole_number(0));
  number("--min_lr_rate", f.given.train.min_lr_rate, "of cosine_with_min_lr: last rate over first", part);
  number("--weight_decay", f.given.adamw.weight_decay, "of matrices", not_negative);
  number("--adam_beta1", f.given.adamw.beta1, "", real_number({.least = 0, .below = 1}));
  number("--adam_beta2", f.given.adamw.beta2, "", real_number({.least = 0, .below = 1}));
  number("--adam_epsilon", f.given.adamw.epsilon, "", real_number({.above = 0}));
  number("--talker_loss_weight", f.given.train.talker_loss_weight,
         "of the loss of speech beside that of text, where a talker is trained", real_number({.above = 0}));
  number("--neftune_noise_alpha", f.given.train.neftune_noise_alpha, "of noise on embeddings in training; 0: none",
         not_negative);
  number("--label_smoothing_factor", f.given.train.label_smoothing,
         "part of each token's label that is spread over the vocabulary", part);
  number("--max_grad_norm", f.given.train.max_grad_norm, "gradients are clipped to this norm; 0: not", not_negative);
}

void add_logger_flags(CLI::App& app, SftFlags& f, const std::string& group) {
  app.add_option("--report_to", f.given.report_to,
                 "tensorboard, wandb, swanlab, mlflow, a program of your own (./my_logger.py), none; several at once")
      ->group(group);
  app.add_option("--run_name", f.given.logger.name, "of the run at a tracker; not given: as its folder")->group(group);
  app.add_option("--project", f.given.logger.project, "at a tracker; WANDB_PROJECT and its like count more")
      ->capture_default_str()
      ->group(group);
  for (const char* const name : {"swanlab_mode", "swanlab_workspace", "swanlab_logdir"}) {
    app.add_option(std::string("--") + name, f.given.logger.settings[name], "as swanlab.init has it")->group(group);
  }
}

void add_following_flags(CLI::App& app, SftFlags& f) {
  const char* group = "Run folder";
  app.add_option("--logging_strategy", f.given.logging_strategy, "steps | epoch | no")
      ->check(strategies())
      ->capture_default_str()
      ->group(group);
  app.add_option("--eval_on_start", f.given.train.eval_on_start, "evaluate before the first step")
      ->capture_default_str()
      ->group(group);
  app.add_option("--metric_for_best_model", f.given.metric_for_best_model,
                 "loss | token_acc | whatever an evaluation measures (rouge_l, exact_match, a program's)")
      ->capture_default_str()
      ->group(group);
  app.add_option("--greater_is_better", f.given.greater_is_better,
                 "of that metric (default: unless it is a loss or the perplexity)")
      ->group(group);
  app.add_option("--load_best_model_at_end", f.given.load_best_model_at_end,
                 "what goes on from this run (the next stage, the command at its end) takes its best checkpoint")
      ->capture_default_str()
      ->group(group);
  app.add_option("--early_stopping_patience", f.given.train.early_stopping_patience,
                 "end when so many evaluations in a row were not better than the best; 0: never")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--early_stop_interval", f.given.train.early_stop_interval,
                 "end when so many checkpoints in a row saw no better evaluation; 0: never")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(group);
}

void add_run_folder_flags(CLI::App& app, SftFlags& f) {
  const char* group = "Run folder";
  app.add_option("--output_dir", f.given.output_dir, "default: output/<name of the model's folder>")->group(group);
  app.add_option("--add_version", f.given.add_version, "a folder vN-<time> of its own for each run")
      ->capture_default_str()
      ->group(group);
  app.add_option("--overwrite_output_dir", f.given.overwrite_output_dir,
                 "begin in a folder that holds checkpoints of an earlier run: they go")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--resume_from_checkpoint", f.given.resume_from_checkpoint,
         "a checkpoint folder; true: the newest whole one in --output_dir; auto: that, or a fresh start where there "
         "is none")
      ->group(group);
  app.add_option("--save_strategy", f.given.save_strategy,
                 "steps | epoch | best (behind evaluations that were better than all before) | no")
      ->check(CLI::IsMember({"steps", "epoch", "best", "no"}))
      ->capture_default_str()
      ->group(group);
  const std::string save_steps = std::to_string(f.given.train.save_steps);
  add_steps_flag(app, "--save_steps", f.given.train.save_steps, f.given.step_parts.save, save_steps, "")->group(group);
  app.add_option("--save_total_limit", f.given.save_total_limit, "checkpoints kept; 0: all")
      ->check(whole_number(0))
      ->capture_default_str()
      ->group(group);
  app.add_option("--save_only_model", f.given.save_only_model,
                 "no optimizer state: such a checkpoint cannot be resumed")
      ->capture_default_str()
      ->group(group);
  add_shard_size_flag(app, group, f.given.max_shard_bytes);
  app.add_option("--create_checkpoint_symlink", f.given.create_checkpoint_symlink,
                 "links \"last\" and \"best\" in the run's folder, at its end")
      ->capture_default_str()
      ->group(group);
  app.add_option("--eval_strategy,--evaluation_strategy", f.given.eval_strategy,
                 "steps | epoch | end (once, behind the last step) | no (default: as --save_strategy)")
      ->check(CLI::IsMember({"steps", "epoch", "end", "no"}))
      ->group(group);
  add_steps_flag(app, "--eval_steps", f.given.eval_steps, f.given.step_parts.eval, "", "default: --save_steps")
      ->group(group);
  app.add_option("--eval_delay", f.given.train.eval_delay,
                 "no evaluation before so many steps, or epochs with --eval_strategy epoch")
      ->check(real_number({.least = 0}))
      ->capture_default_str()
      ->group(group);
  app.add_option("--predict_with_generate", f.given.predict_with_generate,
                 "evaluation also generates answers and measures them")
      ->capture_default_str()
      ->group(group);
  app.add_option("--max_new_tokens", f.given.max_new_tokens, "of a generated answer")
      ->check(whole_number(1, kMostNewTokens))
      ->capture_default_str()
      ->group(group);
  add_sampling_flags(app, group, f.given.sampling);
  add_metric_flags(app, f.given.metric, group);
  const std::string logging_steps = std::to_string(f.given.train.logging_steps);
  add_steps_flag(app, "--logging_steps", f.given.train.logging_steps, f.given.step_parts.logging, logging_steps, "")
      ->group(group);
  app.add_option("--logging_first_step", f.given.train.logging_first_step, "")->capture_default_str()->group(group);
  add_logger_flags(app, f, group);
}

}  // namespace

FineTuneOptions SftFlags::options(const Env& process_env) const {
  const Env env = run.with_variables(process_env);
  FineTuneOptions out = given;
  out.run = run.options(env);
  out.rows = rows.options(env);
  if (out.run.adapters.empty()) out.run.joint.seed = out.rows.seed;  // else that of the run that trained them
  out.rows.draws_rows = out.dataset_shuffle;
  out.rows.data_seed = out.data_seed.value_or(out.rows.seed);
  out.sampling.seed = out.rows.seed;
  if (!reduce_dtype.empty()) {
    out.reduce_dtype = dtype_from_flag(reduce_dtype);
  }
  if (!run.deepspeed.empty()) {
    const DeepSpeedChoice choice = DeepSpeedChoice::from_flag(run.deepspeed);
    if (reduce_dtype.empty()) out.reduce_dtype = choice.reduce;
    out.decays_all = choice.decays_all;
    out.train.loss_scaling = choice.loss_scaling;
  }
  out.tuner = tuner.options();
  out.train.learning_rate = learning_rate.value_or(out.tuner.adapts() ? 1e-4 : out.train.learning_rate);
  if (out.tuner.type == "lora_llm") {
    if (!out.components.freeze_vit) out.components.freeze_vit = false;
    if (!out.components.freeze_aligner) out.components.freeze_aligner = false;
  }
  out.train.schedule = schedule_from_flag(lr_scheduler_type);
  out.train.schedule_shape = ScheduleShape::from_flag(lr_scheduler_kwargs, out.train.schedule);
  out.train.schedule_shape.check(out.train.schedule, out.train.learning_rate, out.train.min_lr_rate);
  std::erase_if(out.logger.settings, [](const auto& setting) { return setting.second.empty(); });
  out.metric.search_path = env.text("PATH").value_or("");
  return out;
}

void SftParser::add_to(CLI::App& app, Verb verb) {
  add_run_flags(app, flags_.run);
  add_data_flags(app, flags_);
  add_step_flags(app, flags_);
  add_tuner_flags(app, flags_.tuner);
  add_component_flags(app, flags_.given.components, /*rates=*/true);
  add_run_folder_flags(app, flags_);
  add_following_flags(app, flags_);
  if (verb == Verb::kSft) return;
  const std::set<std::string> no_matter{"Run folder"};  // to memory: taken, and not listed
  for (auto* option : app.get_options([&](const CLI::Option* o) { return no_matter.contains(o->get_group()); })) {
    option->group("");
  }
}

void SftParser::check(CLI::App& app) {
  SftFlags& f = flags_;
  const auto of_deepspeed = agree_with_deepspeed(f, app);
  f.options(Env()).check();
  if (!f.tuner.type_given) {
    f.notices.emplace_back("--tuner_type is not given: lora, as ms-swift has it; every weight: --tuner_type full");
  }
  f.notices.insert(f.notices.end(), of_deepspeed.begin(), of_deepspeed.end());
}

namespace {

constexpr const char* kExamples =
    "Example:\n  lockstep sft --model my-model --dataset train.jsonl --tuner_type full --deepspeed zero3 --nproc 2 "
    "--output_dir output\n"
    "  lockstep sft args.json --max_steps 20\n"
    "  lockstep sft stages.yaml --nproc 2      \"stages:\" in the file: one run after the other, each from the last "
    "checkpoint of the one before";
constexpr const char* kPretrainingExamples =
    "Example:\n  lockstep pt --model my-model --dataset texts.jsonl --tuner_type full --packing true --max_length 4096 "
    "--output_dir output\n"
    "A row is a text, {\"text\": …}, or a line of a .txt file; all of it is learnt.";

}  // namespace

std::optional<SftFlags> parse_sft_flags(const std::vector<std::string>& args, bool pretrains) {
  SftFlags flags;
  SftParser parser(flags);
  CLI::App app(std::string(pretrains ? pt_summary : sft_summary) +
                   "; flags are ms-swift's, and a YAML or JSON file of them may come first",
               pretrains ? "lockstep pt" : "lockstep sft");
  app.footer(pretrains ? kPretrainingExamples : kExamples);
  if (pretrains) {
    flags.run.given.use_chat_template = false;
    flags.rows.loss_scale = "all";
  }
  parser.add_to(app, SftParser::Verb::kSft);
  const UsualFlags usual = {"model",
                            "dataset",
                            "val_dataset",
                            "output_dir",
                            "nproc",
                            "deepspeed",
                            "torch_dtype",
                            "batch_size",
                            "gradient_accumulation_steps",
                            "num_train_epochs",
                            "max_steps",
                            "learning_rate",
                            "max_length",
                            "train",
                            "resume_from_checkpoint"};
  OtherStacks others{.verb = "sft", .notices = {}};
  if (!parse_flags(app, args, usual, &others)) return std::nullopt;
  flags.notices = std::move(others.notices);
  for (const auto& own : others.unsaid)
    flags.tuner.given.given.erase(own);  // an adapter that goes on is not held to them
  flags.run.given.unsaid = std::move(others.unsaid);
  parser.check(app);
  flags.given.require_dataset();
  flags.given.args_json = flags_as_json(app).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  return flags;
}

}  // namespace lockstep
