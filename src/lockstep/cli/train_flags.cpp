#include "lockstep/cli/train_flags.h"

#include <algorithm>
#include <set>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/flags.h"
#include "lockstep/plan/flag_json.h"

namespace lockstep {
namespace {

const CLI::Validator& strategies() {
  static const CLI::Validator names = CLI::IsMember({"steps", "epoch", "no"});
  return names;
}

void add_data_flags(CLI::App& app, SftFlags& f) {
  app.add_option("--dataset", f.dataset, "JSONL or JSON files; file#N takes N rows")->group("Data");
  app.add_option("--val_dataset", f.val_dataset, "files to evaluate on")->group("Data");
  app.add_option("--split_dataset_ratio", f.split_dataset_ratio, "part of --dataset kept for evaluation")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str()
      ->group("Data");
  add_row_flags(app, f.rows);
  app.add_option("--data_seed", f.data_seed, "of the data order (default: --seed)")->group("Data");
  app.add_option("--dataset_shuffle", f.dataset_shuffle, "a new order each epoch")
      ->capture_default_str()
      ->group("Data");
}

void add_step_flags(CLI::App& app, SftFlags& f) {
  const auto positive = CLI::PositiveNumber;
  const auto not_negative = CLI::NonNegativeNumber;
  const auto number = [&](const char* name, auto& value, const char* what, const CLI::Validator& check) {
    app.add_option(name, value, what)->check(check)->capture_default_str()->group("Training");
  };
  add_batch_flags(app, "--per_device_train_batch_size,--batch_size", "rows of a micro-batch on one rank", "Training",
                  f.batch);
  number("--per_device_eval_batch_size", f.per_device_eval_batch_size, "rows on one rank when evaluating", positive);
  app.add_option("--gradient_accumulation_steps", f.gradient_accumulation_steps,
                 "micro-batches of a step (default: so that a step has 16 rows)")
      ->check(CLI::Range(int64_t{1}, kMostRowsAtOnce))
      ->group("Training");
  number("--num_train_epochs", f.train.num_train_epochs, "times that each row is seen", positive);
  app.add_option("--max_steps", f.train.max_steps, "steps, whatever the epochs; -1: by epochs")
      ->capture_default_str()
      ->group("Training");
  number("--loss_chunk", f.train.loss_chunk, "positions whose logits exist at once", positive);
  app.add_option("--gradient_checkpointing", f.gradient_checkpointing, "recompute activations on the way back")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--vit_gradient_checkpointing", f.vit_gradient_checkpointing,
                 "the same for the vision tower (default: as above)")
      ->group("Training");
  number("--learning_rate", f.train.learning_rate, "the highest", not_negative);
  app.add_option("--lr_scheduler_type", f.lr_scheduler_type, join(schedule_names(), " | "))
      ->capture_default_str()
      ->group("Training");
  number("--warmup_ratio", f.train.warmup_ratio, "part of the steps", CLI::Range(0.0, 1.0));
  number("--warmup_steps", f.train.warmup_steps, "steps, over --warmup_ratio", not_negative);
  number("--min_lr_rate", f.train.min_lr_rate, "of cosine_with_min_lr: last rate over first", CLI::Range(0.0, 1.0));
  number("--weight_decay", f.adamw.weight_decay, "of matrices", not_negative);
  number("--adam_beta1", f.adamw.beta1, "", CLI::Range(0.0, 1.0));
  number("--adam_beta2", f.adamw.beta2, "", CLI::Range(0.0, 1.0));
  number("--adam_epsilon", f.adamw.epsilon, "", positive);
  number("--max_grad_norm", f.train.max_grad_norm, "gradients are clipped to this norm; 0: not", not_negative);
}

void add_run_folder_flags(CLI::App& app, SftFlags& f) {
  const char* group = "Run folder";
  app.add_option("--output_dir", f.output_dir, "default: output/<name of the model's folder>")->group(group);
  app.add_option("--add_version", f.add_version, "a folder vN-<time> of its own for each run")
      ->capture_default_str()
      ->group(group);
  app.add_option("--resume_from_checkpoint", f.resume_from_checkpoint,
                 "a checkpoint folder, or true: the newest whole one in --output_dir")
      ->group(group);
  app.add_option("--save_strategy", f.save_strategy, "steps | epoch | no")
      ->check(strategies())
      ->capture_default_str()
      ->group(group);
  app.add_option("--save_steps", f.train.save_steps, "")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--save_total_limit", f.save_total_limit, "checkpoints kept; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--save_only_model", f.save_only_model, "no optimizer state: such a checkpoint cannot be resumed")
      ->capture_default_str()
      ->group(group);
  app.add_option("--eval_strategy,--evaluation_strategy", f.eval_strategy,
                 "steps | epoch | no (default: as --save_strategy)")
      ->check(strategies())
      ->group(group);
  app.add_option("--eval_steps", f.eval_steps, "default: --save_steps")->check(CLI::PositiveNumber)->group(group);
  app.add_option("--predict_with_generate", f.predict_with_generate,
                 "evaluation also generates answers and measures them")
      ->capture_default_str()
      ->group(group);
  app.add_option("--max_new_tokens", f.max_new_tokens, "of a generated answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  add_metric_flags(app, f.metric, group);
  app.add_option("--logging_steps", f.train.logging_steps, "")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->group(group);
  app.add_option("--logging_first_step", f.train.logging_first_step, "")->capture_default_str()->group(group);
  app.add_option("--report_to", f.report_to, "tensorboard, none")->group(group);
}

/// What of a DeepSpeed file has no effect, as a notice; "": nothing.
std::string ignored_of_deepspeed(const std::string& flag) {
  if (flag.empty()) return {};
  const std::vector<std::string> ignored = DeepSpeedChoice::from_flag(flag).ignored;
  if (ignored.empty()) return {};
  const std::string where = is_inline_object(flag) ? "--deepspeed" : "--deepspeed " + flag;
  return fmt::format("{}: only zero_optimization is read; without effect: {}", where, join(ignored, ", "));
}

/// Steps of a strategy; the end of an epoch may be "each N steps" because epochs have equally many.
int64_t steps_of(const std::string& strategy, int64_t steps, int64_t per_epoch) {
  if (strategy == "no") return 0;
  return strategy == "epoch" ? per_epoch : steps;
}

}  // namespace

PlanOptions SftFlags::plan_options(int world, Dtype compute) const {
  return {.world = world,
          .zero = run.zero(),
          .compute = compute,
          .training = true,
          .recompute = gradient_checkpointing,
          .recompute_vision = vit_gradient_checkpointing.value_or(gradient_checkpointing),
          .frozen = components.frozen(),
          .freeze_prefixes = components.freeze_parameters};
}

int64_t SftFlags::accumulation(int world) const {
  const int64_t rows_at_once = std::max<int64_t>(1, batch.size) * world;
  return gradient_accumulation_steps.value_or(std::max<int64_t>(1, (16 + rows_at_once - 1) / rows_at_once));
}

TrainOptions SftFlags::train_options(int world, int64_t batches_per_epoch, bool evaluates) const {
  TrainOptions out = train;
  out.rate_ratios = adamw.rate_ratios;
  out.per_device_train_batch_size = batch.size;
  out.gradient_accumulation_steps = accumulation(world);
  const int64_t per_epoch = steps_per_epoch(batches_per_epoch, out.gradient_accumulation_steps);
  const std::string evaluation = eval_strategy.empty() ? save_strategy : eval_strategy;
  out.save_steps = steps_of(save_strategy, train.save_steps, per_epoch);
  out.eval_steps = evaluates ? steps_of(evaluation, eval_steps.value_or(train.save_steps), per_epoch) : 0;
  out.save_at_end = save_strategy != "no";
  out.eval_at_end = evaluates && evaluation != "no";
  return out;
}

void SftParser::add_to(CLI::App& app, Verb verb) {
  add_run_flags(app, flags_.run);
  add_data_flags(app, flags_);
  add_step_flags(app, flags_);
  app.add_option("--tuner_type,--train_type,--sft_type", flags_.tuner_type, "full")
      ->capture_default_str()
      ->group("What is trained");
  add_component_flags(app, flags_.components, /*rates=*/true);
  add_run_folder_flags(app, flags_);
  swift_.add_to(app);
  if (verb == Verb::kSft) return;
  const std::set<std::string> no_matter{"Run folder"};  // to memory: taken, and not listed
  for (auto* option : app.get_options([&](const CLI::Option* o) { return no_matter.contains(o->get_group()); })) {
    option->group("");
  }
}

void SftParser::check() {
  SftFlags& f = flags_;
  f.notices = swift_.judge();
  if (f.tuner_type != "full") {
    throw usage_error(fmt::format("--tuner_type {}: only full is built so far", f.tuner_type), "--tuner_type full");
  }
  for (const auto& name : f.report_to) {
    if (name == "tensorboard" || name == "none" || name == "all") continue;
    throw usage_error(fmt::format("--report_to {}: expected tensorboard or none", name));
  }
  if (f.train.max_steps == 0 || f.train.max_steps < -1) {
    throw usage_error(fmt::format("--max_steps: expected -1 or at least 1, found {}", f.train.max_steps));
  }
  f.train.schedule = schedule_from_flag(f.lr_scheduler_type);
  f.train.seed = f.rows.seed;
  f.train.strict = f.rows.strict;
  f.run.dtype();
  f.run.zero();
  transport_from_flag(f.run.transport);
  f.components.check_unbuilt(f.run.without());
  f.adamw.rate_ratios = f.components.rate_ratios(f.train.learning_rate);
  f.metrics = f.metric.chosen(f.predict_with_generate);
  const std::string unread = ignored_of_deepspeed(f.run.deepspeed);
  if (!unread.empty()) f.notices.push_back(unread);
  if (f.run.deepspeed.empty())
    f.notices.emplace_back("--deepspeed is not given: zero3, which holds the least on each rank");
}

std::optional<SftFlags> parse_sft_flags(const std::vector<std::string>& args) {
  SftFlags flags;
  SftParser parser(flags);
  CLI::App app("fine-tune a model; flags are ms-swift's, and a YAML or JSON file of them may come first",
               "lockstep sft");
  app.footer(
      "Example:\n  lockstep sft --model my-model --dataset train.jsonl --deepspeed zero3 --nproc 2 --output_dir "
      "output\n"
      "  lockstep sft args.json --max_steps 20\n"
      "  lockstep sft stages.yaml --nproc 2      \"stages:\" in the file: one run after the other, each from the last "
      "checkpoint of the one before");
  parser.add_to(app, SftParser::Verb::kSft);
  if (!parse_flags(app, args)) return std::nullopt;
  parser.check();
  if (flags.dataset.empty()) throw usage_error("--dataset is required", "--dataset train.jsonl");
  flags.args_json = flags_as_json(app).dump(2) + "\n";
  return flags;
}

}  // namespace lockstep
