#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/process_memory.h"
#include "lockstep/base/text_format.h"
#include "lockstep/comm/agree.h"
#include "lockstep/comm/together.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/session/adapter_base.h"
#include "lockstep/tasks/answer_rows.h"
#include "lockstep/tasks/fine_tune_run.h"
#include "lockstep/tasks/output_place.h"
#include "lockstep/tasks/resume_check.h"
#include "lockstep/tasks/shared_folder.h"
#include "lockstep/tasks/unheeded.h"
#include "lockstep/watch/jsonl_sink.h"
#include "lockstep/watch/logger_sink.h"
#include "lockstep/watch/memory_sink.h"
#include "lockstep/watch/report_sink.h"
#include "lockstep/watch/tensorboard_sink.h"
#include "lockstep/zoo/dropout_keys.h"

namespace lockstep {
namespace fs = std::filesystem;

FineTuneRun::FineTuneRun(Job& job, FineTuneOptions options, const EventBus& events)
    : job_(job), options_(std::move(options)), caller_(events) {
  events_.add(caller_);
}

FineTuneRun::~FineTuneRun() = default;

FineTuned FineTuneRun::run() {
  try {
    options_.check();
    options_.check_rows_of_step(job_.world.size);
    options_.require_dataset();
    find_programs();
    choose_folder();
    open_rows();
    check_resumed();
    RunOptions run = options_.run;
    if (!folder_.checkpoint.empty()) resume_from(run);
    session_ = std::make_unique<Session>(job_, run);
    decide();
    predict();
    for (const auto& text : session_->notices()) notice(text);
    for (const auto& words : unheeded_words(options_, session_->model())) notice(words);
    if (!folder_.checkpoint.empty() && session_->adapters()) {
      const std::string words = unheeded_beginning(options_, session_->adapters()->config);
      if (!words.empty()) notice(words);
    }
    for (const auto& key : dropout_keys(session_->folder().config)) {
      notice(fmt::format("config.json: {} is not applied: nothing is dropped at random but by --lora_dropout", key));
    }
    tell_rows();
    check_first_sample();
    check_fits();
    check_machine();
    job_.control().recorder().set_post_mortem_dir(std::filesystem::absolute(folder_.dir).string());
    const ProcessMemory idle = read_memory();
    session_->load(options_.rows.seed);
    make_trainer();
    meter_.emplace(job_, session_->store().devices(), idle.resident_bytes - idle.file_bytes, forecast_.account(),
                   session_->shared_bytes());
    make_folder();
    announce();
    TrainOutcome outcome = trainer_->run();
    if (outcome.steps == 0 && outcome.last_checkpoint.empty()) {  // where the run stands still
      outcome.last_checkpoint = folder_.checkpoint.string();
    }
    return finish(outcome);
  } catch (const Error& error) {
    tell_failure(error);
    throw;
  }
}

/// The weights of a checkpoint: of the whole model, or of adapters over the one that was asked for.
void FineTuneRun::resume_from(RunOptions& run) const {
  if (is_adapter_folder(folder_.checkpoint)) {
    run.adapters = {{"", folder_.checkpoint}};
    run.token_rows = token_rows_of(folder_.checkpoint);
  } else {
    run.model = folder_.checkpoint;
    run.joint = {.conversation = run.joint.conversation};  // it is one model by now
  }
}

/// What is trained, where it stands, and what memory is planned for.
void FineTuneRun::decide() {
  PlanOptions wanted;
  RowsOfStep rows;
  if (options_.rows.truncation == Truncation::kSplit) split_rows();  // which a plan looks at
  together(job_.control(), "deciding what is trained", [&] {
    options_.components.check_against(session_->model());
    require_layout(options_.grouping, session_->model());
    wanted = options_.plan_options(job_.world.size, session_->dtype());
    options_.rows.speaks = session_->model().speech && !wanted.frozen.contains(Component::kTalker);
    wanted.adapters = adapters();
    if (session_->quantised() && !wanted.adapters) {
      throw usage_error("--tuner_type full: matrices are kept as codes of few bits, which cannot be trained or saved",
                        "--tuner_type lora trains adapters over them");
    }
    if (job_.reports() && !options_.grouping.measures()) rows = planned_step();
  });
  bring_together();
  if (options_.grouping.measures()) {
    together(job_.control(), "choosing the rows to plan for", [&] {
      if (job_.reports()) rows = planned_step();
    });
  }
  session_->decide(wanted, rows,
                   {.layout = options_.grouping.layout(), .noise = options_.train.neftune_noise_alpha > 0});
  choose_kept_blocks();
}

/// Those of a folder, or fresh ones; null: every weight is trained.
std::shared_ptr<const AdapterLayout> FineTuneRun::adapters() {
  Session& s = *session_;
  if (!options_.tuner.adapts() && s.adapters()) {
    throw usage_error(
        "--adapters beside --tuner_type full: which of both is to be trained?",
        "--tuner_type lora goes on with the adapter; `lockstep export --merge_lora true` puts it into the model");
  }
  if (options_.tuner.adapts()) {
    const double rate = options_.train.learning_rate;
    s.adapt(s.adapters() ? continued_adapters(options_.tuner, options_.components, rate, s.model(), *s.adapters())
                         : fresh_adapters(options_.tuner, options_.components, rate, s.model(), s.naming()));
  }
  return s.adapters();
}

/// A slip in a program's name must not show at the first evaluation, nor a package that is missing at the first step.
void FineTuneRun::find_programs() {
  together(job_.control(), "finding programs", [&] {
    if (!job_.reports()) return;
    programs_ = options_.metric.found();
    for (const auto& name : options_.loggers()) {
      Program program = logger_program(name, options_.metric.search_path);
      loggers_.push_back(std::make_unique<LoggerSink>(std::move(program), options_.logger, events_));
    }
  });
}

void FineTuneRun::choose_folder() {
  together(job_.control(), "choosing the run folder", [&] {
    if (!job_.reports()) return;
    folder_ = choose_run_folder({.output_dir = options_.output_dir.string(),
                                 .model = options_.run.model.string(),
                                 .resume_from_checkpoint = options_.resume_from_checkpoint,
                                 .launch_id = options_.launch_id,
                                 .add_version = options_.add_version,
                                 .overwrite = options_.overwrite_output_dir});
    require_folder_place("--output_dir", folder_.dir);
    if (options_.create_checkpoint_symlink) require_place_for_links(folder_.dir);
    if (fs::is_directory(folder_.dir)) own_folder();
  });
  folder_.dir = from_rank_0(job_.control(), folder_.dir.string(), "run folder");
  folder_.checkpoint = from_rank_0(job_.control(), folder_.checkpoint.string(), "checkpoint to resume");
  for (const auto& text : folder_.notices) notice(text);
  if (const std::string other = other_place_given("--output_dir", options_.output_dir, job_); !other.empty())
    notice(other);
}

/// Two runs in one folder would overwrite each other's checkpoints.
void FineTuneRun::own_folder() {
  if (!folder_lock_) folder_lock_.emplace(folder_.dir / ".lock");
  if (folder_lock_->held()) return;
  throw usage_error(
      fmt::format("--output_dir: another run writes in {} ({})", folder_.dir.string(), folder_lock_->owner()),
      "wait for it, stop it, or name another folder");
}

void FineTuneRun::check_resumed() {
  if (folder_.checkpoint.empty()) return;
  int64_t chunk = 0;
  together(job_.control(), "looking at the checkpoint to resume", [&] {
    if (!job_.reports()) return;
    const TrainerState before = check_resume({.checkpoint = folder_.checkpoint,
                                              .model = options_.run.place(),
                                              .order = row_order(),
                                              .rows = train_rows_->fingerprint(),
                                              .codes = options_.run.quant.describe()});
    if (before.order) chunk = before.order->chunk;
  });
  resumed_chunk_ = std::stoll(from_rank_0(job_.control(), std::to_string(chunk), "rows of a chunk"));
}

TrainerState FineTuneRun::fresh_state() const {
  TrainerState state;
  state.seed = options_.rows.seed;
  state.order = row_order();
  state.world = job_.world.size;
  state.launch_id = options_.launch_id;
  state.zero_stage = session_->plan().options.zero.stage;
  state.dataset_fingerprint = train_rows_->fingerprint();
  state.best_of = fmt::format("{} {}", options_.more_is_better() ? "highest" : "lowest", options_.judged_by());
  return state;
}

/// Of the components that the model has.
std::map<Component, double> FineTuneRun::rate_ratios() const {
  auto ratios = options_.components.rate_ratios(options_.train.learning_rate);
  const auto present = components_of(session_->model());
  std::erase_if(ratios, [&](const auto& one) { return std::ranges::find(present, one.first) == present.end(); });
  return ratios;
}

void FineTuneRun::make_trainer() {
  Session& s = *session_;
  AdamWOptions adamw = options_.adamw;
  adamw.rate_ratios = rate_ratios();
  adamw_ = std::make_unique<ShardedAdamW>(s.store(), job_.data(), adamw);
  if (options_.batch.is_auto()) {
    options_.batch.rows = find_batch_size();
    options_.check_rows_of_step(job_.world.size);
    planned_.batch = options_.batch.rows;
    planned_.accumulation = options_.accumulation(job_.world.size);
    predict();
  }
  LoaderOptions training = loader_options(options_.batch.rows, options_.dataset_shuffle);
  grouped_.apply(training, train_rows_->size(), rows_at_once());
  training.drop_last = options_.dataloader_drop_last;
  train_loader_ = std::make_unique<Loader>(*train_rows_, s.processor(), training);
  if (train_loader_->batches_per_epoch() == 0) {
    throw usage_error(
        fmt::format("--dataloader_drop_last true: the {} rows fill no micro-batch of {} ranks, so none is left",
                    train_rows_->size(), job_.world.size),
        "a smaller --per_device_train_batch_size, or leave the flag out");
  }
  source_ = std::make_unique<ModelSource>(ModelSource{s.model(), s.weights(), s.keys()});
  train_options_ = options_.train_options(job_.world.size, train_loader_->batches_per_epoch(), val_rows_.has_value());
  train_options_.rate_ratios = adamw.rate_ratios;
  TrainerHooks hooks{.stop_wanted = options_.stop_wanted,
                     .save = [this](const TrainerState& state) { return save(state); },
                     .fits = admission(),
                     .measure_memory = [this](const std::string& batch) { return meter_->measure(batch); }};
  if (val_rows_) hooks.evaluate = [this](int64_t step) { return evaluate(step); };
  hooks.judge = [this](const EvalDone& done) { return judge(done); };
  trainer_ = std::make_unique<Trainer>(
      TrainerParts{s.plan(), s.store(), s.executor(), *adamw_, job_.data(), job_.control(), *train_loader_, events_},
      train_options_, std::move(hooks), collate(), train_loader_->rows_per_epoch(), fresh_state());
  if (!folder_.checkpoint.empty()) restore_trainer();
}

void FineTuneRun::restore_trainer() {
  TrainerState state = resume_state(folder_.checkpoint, session_->store(), job_.data(), job_.control());
  if (state.best_global_step > 0 && !state.best_metric) {
    notice(
        fmt::format("the best checkpoint so far, of step {}, is no longer beside {}: the next evaluation is the best",
                    state.best_global_step, folder_.checkpoint.string()));
  }
  if (const int64_t at = state.cursor.rows; at > 0 && train_loader_->epoch_end(at) <= at) {
    notice(fmt::format(
        "--dataloader_drop_last true: what is left of epoch {} after its first {} fills no micro-batch of {} "
        "ranks with {} each, and is left out",
        state.cursor.epoch + 1, at, job_.world.size, options_.batch.rows));
    state.cursor = {.epoch = state.cursor.epoch + 1, .rows = 0};
  }
  require_same_groups(folder_.checkpoint, state, row_order());
  trainer_->restore(state);
  const std::string changes = resume_changes(state, trainer_->state());
  if (!changes.empty()) notice(changes);
}

/// It comes into being here, when everything that a person can get wrong has been looked at.
void FineTuneRun::make_folder() {
  together(job_.control(), "making the run folder", [&] {
    if (!job_.reports()) return;
    std::error_code failed;
    fs::create_directories(folder_.dir, failed);
    if (failed) {
      throw usage_error(fmt::format("--output_dir: {} cannot be made ({})", folder_.dir.string(), failed.message()),
                        "name a folder that can be written");
    }
    own_folder();
  });
  require_shared("--output_dir", folder_.dir, job_);
}

void FineTuneRun::announce() {
  const Plan& plan = session_->plan();
  together(job_.control(), "beginning the run folder's files", [&] {
    if (!job_.reports()) return;
    remove_overwritten();
    args_kept_ = options_.args_json;
    if (!session_->rendering().rows.empty()) args_kept_ = with_rendering(args_kept_, session_->rendering());
    if (session_->adapters()) args_kept_ = with_base(args_kept_, options_.run.place());
    write_text(folder_.dir / "args.json", args_kept_);
    keep_split_rows();
    const std::string plan_json = whole_plan().dump(1, ' ', false, Json::error_handler_t::replace);
    write_text(folder_.dir / "plan.json", plan_json);
    const fs::path log = folder_.dir / "logging.jsonl";
    std::vector<std::unique_ptr<EventSink>> files;
    files.push_back(std::make_unique<ReportSink>(ReportOptions{.page = folder_.dir / "report.html", .log = log}));
    files.push_back(std::make_unique<JsonlSink>(log));
    files.push_back(std::make_unique<MemorySink>(folder_.dir / "memory.json", events_));
    if (options_.reports_to("tensorboard")) files.push_back(std::make_unique<TensorBoardSink>(folder_.dir / "runs"));
    std::ranges::move(loggers_, std::back_inserter(files));
    for (auto& sink : files) {
      events_.add(*sink);
      files_.add(*sink);
      sinks_.push_back(std::move(sink));
    }
    events_.emit(RunStarted{.verb = "sft",
                            .output_dir = folder_.dir.string(),
                            .model_family = session_->model().family,
                            .args_json = options_.args_json,
                            .plan_json = plan_json,
                            .plan_text = plan.print(session_->model()) + "\n" + forecast_.print(),
                            .world_size = job_.world.size,
                            .start_step = trainer_->state().global_step,
                            .max_steps = trainer_->state().max_steps,
                            .num_params = plan.num_params(),
                            .num_trainable_params = plan.num_trainable()});
    announced_ = true;
  });
}

void FineTuneRun::tell_failure(const Error& error) {
  if (!announced_) return;
  try {
    files_.emit(RunEnded{.outcome = error.what(),
                         .exit_code = static_cast<int>(error.code()),
                         .seconds = seconds_since(started_),
                         .step = trainer_->state().global_step});
  } catch (
      const std::
          exception&) {  // NOLINT(bugprone-empty-catch): a full disk, or no memory, must not take the error's place
  }
}

FineTuned fine_tune(Job& job, const FineTuneOptions& options, const EventBus& events) {
  return FineTuneRun(job, options, events).run();
}

}  // namespace lockstep
