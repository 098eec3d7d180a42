#include "lockstep/cli/sft_run.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/base/text_format.h"
#include "lockstep/cli/answers.h"
#include "lockstep/cli/sample_view.h"
#include "lockstep/cli/unbuilt_rows.h"
#include "lockstep/comm/together.h"
#include "lockstep/plan/compatibility.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/watch/communication_table.h"
#include "lockstep/watch/console_sink.h"
#include "lockstep/watch/jsonl_sink.h"
#include "lockstep/watch/memory_sink.h"
#include "lockstep/watch/memory_watch.h"
#include "lockstep/watch/report_sink.h"
#include "lockstep/watch/tensorboard_sink.h"

namespace lockstep {
namespace fs = std::filesystem;

SftRun::SftRun(Job& job, const SftFlags& flags, std::vector<std::string> args, const Env& env,
               const StopSignals& signals)
    : job_(job), flags_(flags), args_(std::move(args)), env_(env), signals_(signals) {
  if (!job_.reports()) return;
  sinks_.push_back(std::make_unique<ConsoleSink>(std::cout, console_options(env, 1, /*quiet=*/false)));
  events_.add(*sinks_.back());
}

SftRun::~SftRun() = default;

int SftRun::run() {
  try {
    for (const auto& text : flags_.notices) notice(text);
    find_programs();
    choose_folder();
    const std::string dir = folder_.checkpoint.empty() ? flags_.run.model : folder_.checkpoint.string();
    open_rows();
    session_ = std::make_unique<Session>(
        job_, dir, flags_.run,
        [&](const Model& model, Dtype compute) {
          flags_.components.check_against(model);
          return flags_.plan_options(job_.world.size, compute);
        },
        [&](const ModelFolder&, const Processor& processor) { return planned_rows(processor); });
    predict();
    for (const auto& text : session_->notices()) notice(text);
    tell_rows();
    check_first_sample();
    check_fits();
    job_.control().recorder().set_post_mortem_dir(std::filesystem::absolute(folder_.dir).string());
    const int64_t idle_bytes = read_memory().resident_bytes;
    session_->load();
    make_trainer();
    meter_.emplace(job_, session_->store().devices(), idle_bytes, session_->forecast().account());
    announce();
    return finish(trainer_->run());
  } catch (const Error& error) {
    tell_failure(error);
    throw;
  }
}

/// A slip in a program's name must not show at the first evaluation.
void SftRun::find_programs() {
  together(job_.control(), "finding metric programs", [&] {
    if (job_.reports()) programs_ = flags_.metric.found();
  });
}

void SftRun::choose_folder() {
  together(job_.control(), "choosing the run folder", [&] {
    if (!job_.reports()) return;
    folder_ = choose_run_folder({.output_dir = flags_.output_dir,
                                 .model = flags_.run.model,
                                 .resume_from_checkpoint = flags_.resume_from_checkpoint,
                                 .add_version = flags_.add_version});
  });
  folder_.dir = from_rank_0(job_.control(), folder_.dir.string(), "run folder");
  folder_.checkpoint = from_rank_0(job_.control(), folder_.checkpoint.string(), "checkpoint to resume");
  for (const auto& text : folder_.notices) notice(text);
}

void SftRun::open_rows() {
  const DatasetOptions options = flags_.rows.dataset(env_);
  std::string fingerprint;
  together(job_.control(), "opening data sets", [&] {
    train_rows_.emplace(flags_.dataset, options);
    fingerprint = train_rows_->fingerprint();
    if (!flags_.val_dataset.empty()) val_rows_.emplace(flags_.val_dataset, options);
    if (val_rows_ || flags_.split_dataset_ratio <= 0) return;
    auto [rest, kept] = Dataset::split(std::move(*train_rows_), flags_.split_dataset_ratio,
                                       flags_.data_seed.value_or(flags_.rows.seed));
    train_rows_.emplace(std::move(rest));
    val_rows_.emplace(std::move(kept));
  });
  agree_on(job_.control(),
           {{"data set", fingerprint}, {"evaluation data set", val_rows_ ? val_rows_->fingerprint() : "none"}});
}

void SftRun::tell_rows() {
  const std::string left_out = left_out_reason(session_->model());
  if (!left_out.empty()) notice(left_out + ": checkpoints keep their tensors as they are");
  for (const auto* rows : {&*train_rows_, val_rows_ ? &*val_rows_ : nullptr}) {
    if (rows == nullptr) continue;
    const std::string media = rows_with_media(job_, session_->model(), *rows);
    if (!media.empty()) notice(media);
    if (rows->broken().empty()) continue;
    const auto& first = rows->broken().front();
    notice(fmt::format("{} rows cannot be read and are skipped (--strict true stops at the first): {}: {}",
                       rows->broken().size(), first.where, first.why));
  }
}

/// Template and label mistakes show here, before anything is trained.
void SftRun::check_first_sample() {
  together(job_.control(), "encoding the first row", [&] {
    if (!job_.reports()) return;
    try {
      const Features features = session_->processor().train_features(train_rows_->sample(0), flags_.rows.process());
      const auto trained =
          std::count_if(features.labels.begin(), features.labels.end(), [](int32_t id) { return id >= 0; });
      notice(fmt::format("first row, {} tokens, {} trained in [[ ]]: {}", features.input_ids.size(), trained,
                         view_sample(features, session_->processor().tokenizer())));
    } catch (const UserError& error) {
      if (flags_.rows.strict || error.code() != ExitCode::kData) throw;
      notice("the first row cannot be used: " + std::string(error.what()));
    }
  });
}

LoaderOptions SftRun::loader_options(int64_t batch_size, bool shuffle) const {
  return {.batch_size = batch_size,
          .rank = job_.world.rank,
          .world = job_.world.size,
          .seed = flags_.data_seed.value_or(flags_.rows.seed),
          .shuffle = shuffle,
          .strict = flags_.rows.strict,
          .num_workers = flags_.rows.num_workers,
          .patience_s = flags_.run.data_patience_s(),
          .process = flags_.rows.process()};
}

/// As many copies of the longest row as fit in a forward and a backward pass.
int64_t SftRun::find_batch_size() {
  Session& s = *session_;
  const auto row = longest_row(
      *train_rows_, [&](const Sample& sample) { return s.processor().train_features(sample, flags_.rows.process()); });
  if (!row) return 1;  // nothing to try it with: every row will be named
  const int64_t not_yet_written = s.plan().state_bytes().optimizer;
  const int64_t rows_of_a_rank = (train_rows_->size() + job_.world.size - 1) / job_.world.size;
  return agree_batch_size(job_, flags_.batch.memory_fraction, rows_of_a_rank, [&](int64_t batch) {
    Batch trial = collate(std::vector<Features>(static_cast<size_t>(batch), *row), s.collate());
    const Presence everywhere{.rows = true, .image = trial.has_image};
    const double weight = 1.0 / static_cast<double>(std::max<int64_t>(1, trial.target_tokens));
    s.executor().train(std::move(trial.flow), {.training = true, .loss_weight = weight}, everywhere, everywhere);
    s.executor().grads().clear();
    return not_yet_written;
  });
}

TrainerState SftRun::fresh_state() const {
  TrainerState state;
  state.seed = flags_.rows.seed;
  state.world = job_.world.size;
  state.zero_stage = session_->plan().options.zero.stage;
  state.dataset_fingerprint = train_rows_->fingerprint();
  return state;
}

void SftRun::make_trainer() {
  Session& s = *session_;
  adamw_ = std::make_unique<ShardedAdamW>(s.store(), job_.data(), flags_.adamw);
  if (flags_.batch.size == kAutoBatch) {
    flags_.batch.size = find_batch_size();
    planned_.batch = flags_.batch.size;
    planned_.accumulation = flags_.accumulation(job_.world.size);
    predict();
  }
  train_loader_ =
      std::make_unique<Loader>(*train_rows_, s.processor(), loader_options(flags_.batch.size, flags_.dataset_shuffle));
  if (val_rows_) {
    val_loader_ =
        std::make_unique<Loader>(*val_rows_, s.processor(), loader_options(flags_.per_device_eval_batch_size, false));
  }
  source_ = std::make_unique<ModelSource>(ModelSource{s.model(), s.weights(), s.keys()});
  together(job_.control(), "reading the model's files", [&] {
    if (job_.reports()) side_files_ = read_side_files(s.folder().path);
  });
  options_ = flags_.train_options(job_.world.size, train_loader_->batches_per_epoch(), val_rows_.has_value());
  TrainerHooks hooks{.stop_wanted = [this] { return signals_.received() != 0; },
                     .save = [this](const TrainerState& state) { return save(state); },
                     .fits = admission(),
                     .measure_memory = [this](const std::string& batch) { return meter_->measure(batch); }};
  if (val_rows_) hooks.evaluate = [this](int64_t step) { return evaluate(step); };
  trainer_ = std::make_unique<Trainer>(
      TrainerParts{s.plan(), s.store(), s.executor(), *adamw_, job_.data(), job_.control(), *train_loader_, events_},
      options_, std::move(hooks), s.collate(), train_rows_->size(), fresh_state());
  if (folder_.checkpoint.empty()) return;
  const TrainerState state = resume_state(folder_.checkpoint, s.store(), job_.data(), job_.control());
  if (state.dataset_fingerprint != train_rows_->fingerprint()) {
    throw SharedError(ExitCode::kData,
                      fmt::format("{} was trained on another data set: expected fingerprint {}, found {}",
                                  folder_.checkpoint.string(), state.dataset_fingerprint, train_rows_->fingerprint()),
                      "give the same --dataset files; to go on with others, take the checkpoint as --model");
  }
  trainer_->restore(state);
}

/// The run folder comes into being here, when everything that a person can get wrong has been looked at.
void SftRun::announce() {
  const Plan& plan = session_->plan();
  together(job_.control(), "making the run folder", [&] {
    if (!job_.reports()) return;
    std::error_code failed;
    fs::create_directories(folder_.dir, failed);
    if (failed) {
      throw usage_error(fmt::format("--output_dir: {} cannot be made ({})", folder_.dir.string(), failed.message()),
                        "name a folder that can be written");
    }
    write_text(folder_.dir / "args.json", flags_.args_json);
    const std::string plan_json = whole_plan().dump(1);
    write_text(folder_.dir / "plan.json", plan_json);
    const bool board =
        std::any_of(flags_.report_to.begin(), flags_.report_to.end(), [](const auto& name) { return name != "none"; });
    const fs::path log = folder_.dir / "logging.jsonl";
    std::vector<std::unique_ptr<EventSink>> files;
    files.push_back(std::make_unique<ReportSink>(ReportOptions{.page = folder_.dir / "report.html", .log = log}));
    files.push_back(std::make_unique<JsonlSink>(log));
    files.push_back(std::make_unique<MemorySink>(folder_.dir / "memory.json", events_));
    if (board) files.push_back(std::make_unique<TensorBoardSink>(folder_.dir / "runs"));
    for (auto& sink : files) {
      events_.add(*sink);
      files_.add(*sink);
      sinks_.push_back(std::move(sink));
    }
    events_.emit(RunStarted{.verb = "sft",
                            .output_dir = folder_.dir.string(),
                            .model_family = session_->model().family,
                            .args_json = flags_.args_json,
                            .plan_json = plan_json,
                            .plan_text = plan.print(session_->model()) + "\n" + session_->forecast().print(),
                            .world_size = job_.world.size,
                            .start_step = trainer_->state().global_step,
                            .max_steps = trainer_->state().max_steps,
                            .num_params = plan.num_params(),
                            .num_trainable_params = plan.num_trainable()});
    announced_ = true;
  });
}

CheckpointSaved SftRun::save(const TrainerState& state) {
  return save_checkpoint({*source_, side_files_, flags_.args_json, session_->store(), state},
                         {.output_dir = folder_.dir,
                          .save_only_model = flags_.save_only_model,
                          .save_total_limit = flags_.save_total_limit},
                         job_.data(), job_.control());
}

EvalDone SftRun::evaluate(int64_t step) {
  const auto begun = Clock::now();
  const int64_t total = val_rows_->size();
  const EvaluateOptions options{.loss_chunk = options_.loss_chunk, .progress = [&](int64_t rows) {
                                  events_.emit(Progress{.phase = "evaluate", .done = rows, .total = total});
                                }};
  const LossFigures figures =
      evaluate_loss(session_->executor(), *val_loader_, session_->collate(), job_.data(), job_.control(), options);
  EvalDone done{.step = step, .num_samples = figures.rows, .loss = std::nan(""), .token_accuracy = -1};
  if (figures.target_tokens > 0) {
    done.loss = figures.loss;
    done.token_accuracy = figures.token_accuracy;
    done.metrics.emplace_back("perplexity", perplexity(figures.loss));
  } else {
    notice(
        fmt::format("the evaluation has no loss: none of its {} rows could be used (lockstep eval says why)", total));
  }
  if (flags_.predict_with_generate) evaluate_answers(done);
  done.seconds = seconds_since(begun);
  return done;
}

void SftRun::evaluate_answers(EvalDone& done) {
  AnswerFigures answers =
      answer_rows(*session_, *val_rows_,
                  {.generate = generate_options(*session_, flags_.per_device_eval_batch_size, flags_.max_new_tokens),
                   .process = flags_.rows.process(),
                   .strict = flags_.rows.strict,
                   .num_workers = flags_.rows.num_workers,
                   .patience_s = flags_.run.data_patience_s(),
                   .metrics = flags_.metrics,
                   .programs = programs_,
                   .metric_timeout_s = flags_.metric.timeout_s,
                   .notice = [this](const std::string& text) { notice(text); }});
  const NamedValues values = named_values(answers);
  for (const auto& [name, value] : values.numbers) {
    if (name == "exact_match") {
      done.exact_match = value;
    } else {
      done.metrics.emplace_back(name, value);
    }
  }
  for (const auto& [name, text] : values.others) {
    notice(fmt::format("the metric {} is no number and is not logged: {}", name, text));
  }
  done.groups = std::move(answers.groups);
  done.samples = std::move(answers.samples);
}

int SftRun::finish(const TrainOutcome& outcome) {
  RunEnded ended{.outcome = outcome.interrupted ? "interrupted" : "done",
                 .exit_code = static_cast<int>(outcome.interrupted ? ExitCode::kInterrupted : ExitCode::kOk),
                 .seconds = outcome.seconds,
                 .train_loss = outcome.train_loss,
                 .samples_per_second = static_cast<double>(outcome.samples) / std::max(outcome.seconds, 1e-9),
                 .steps_per_second = static_cast<double>(outcome.steps) / std::max(outcome.seconds, 1e-9),
                 .step = trainer_->state().global_step,
                 .last_checkpoint = outcome.last_checkpoint};
  if (outcome.interrupted) {
    // A stage of several is resumed with them: its launcher knows how.
    ended.next_command = env_.text("LOCKSTEP_RESUME_COMMAND").value_or(resume_command(args_, outcome.last_checkpoint));
  } else if (!outcome.last_checkpoint.empty()) {
    ended.next_command = shell_command({"lockstep", "infer", "--model", outcome.last_checkpoint});
  }
  MemoryMeasured memory = meter_->measure(trainer_->largest_batch());
  memory.step = ended.step;
  memory.max_steps = trainer_->state().max_steps;
  memory.last = true;
  if (announced_) events_.emit(memory);
  ended.communication = communication_of(job_, flags_.run);
  if (announced_ && !ended.communication.empty()) {
    write_json(folder_.dir / "communication.json", communication_json(ended.communication, /*labels=*/true));
  }
  events_.emit(ended);
  return ended.exit_code;
}

void SftRun::tell_failure(const Error& error) {
  if (!announced_) return;
  files_.emit(RunEnded{.outcome = error.what(),
                       .exit_code = static_cast<int>(error.code()),
                       .seconds = seconds_since(started_),
                       .step = trainer_->state().global_step});
}

}  // namespace lockstep
