#include "lockstep/state/trainer_state.h"

#include <cmath>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json_fields.h"

namespace lockstep {

static constexpr const char* kDamaged =
    "the file was changed by something else than a run: take an earlier checkpoint, or the folder as --model";

static void describe(LoaderCursor& cursor, JsonFields& f) {
  f("epoch", cursor.epoch);
  f("rows", cursor.rows);
}

static void describe(LossScaleState& scale, JsonFields& f) {
  f("scale", scale.scale);
  f("steps", scale.steps);
  f("last_overflow", scale.last_overflow);
  f("hysteresis", scale.hysteresis);
}

static void describe(LogSums& sums, JsonFields& f) {
  f("loss", sums.loss);
  f("steps", sums.steps);
  f("correct_tokens", sums.correct_tokens);
  f("target_tokens", sums.target_tokens);
  f.optional("talker_loss", sums.talker_loss, sums.talker_steps > 0);
  f.optional("talker_steps", sums.talker_steps, sums.talker_steps > 0);
}

static void describe(RowOrder& order, JsonFields& f) {
  f("data_seed", order.data_seed);
  f("shuffle", order.shuffle);
  f.optional("groups", order.groups, !order.groups.empty());
  f.optional("chunk", order.chunk, order.chunk > 0);
}

namespace {

/// What the Hugging Face Trainer does not know.
struct LockstepPart {
  TrainerState& state;
};

void describe(LockstepPart& part, JsonFields& f) {
  TrainerState& s = part.state;
  f("updates", s.updates);
  f("tokens_seen", s.tokens_seen);
  f.optional("tokens_computed", s.tokens_computed, s.tokens_computed > 0);
  f("samples_seen", s.samples_seen);
  f("skipped_rows", s.skipped_rows);
  f("total_loss", s.total_loss);
  if (!f.writing()) s.loss_steps = s.updates;  // of a checkpoint that does not say: as near as it tells
  f.optional("loss_steps", s.loss_steps, true);
  f("cursor", s.cursor);
  f("loss_scale", s.loss_scale);
  f("since_log", s.since_log);
  f.optional("rows_per_step", s.rows_per_step, true);
  f.optional("order", s.order, s.order.has_value());
  f.optional("best_of", s.best_of, !s.best_of.empty());
  if (!f.writing() && !s.best_model_checkpoint.empty()) s.best_saved_metric = s.best_metric;  // where it does not say
  f.optional("best_saved_metric", s.best_saved_metric, s.best_saved_metric.has_value());
  f.optional("saves_without_better", s.saves_without_better, s.best_step_at_save >= 0);
  f.optional("best_step_at_save", s.best_step_at_save, s.best_step_at_save >= 0);
  f.optional("evaluations_without_better", s.evaluations_without_better, s.evaluations_without_better > 0);
  f.optional("evaluation_due", s.evaluation_due, s.evaluation_due);
  f("seed", s.seed);
  f("world", s.world);
  f("zero_stage", s.zero_stage);
  f("dataset_fingerprint", s.dataset_fingerprint);
  f.optional("launch_id", s.launch_id, !s.launch_id.empty());
}

}  // namespace

static void describe(TrainerState& s, JsonFields& f) {
  std::vector<Json> history;
  for (const auto& entry : s.log_history) history.push_back(parse_json(entry, "log_history"));
  LockstepPart own{s};
  f.derived("best_global_step", s.best_metric ? Json(s.best_global_step) : Json());
  f("best_metric", s.best_metric);
  f.nullable("best_model_checkpoint", s.best_model_checkpoint, !s.best_model_checkpoint.empty());
  f("epoch", s.epoch);
  f("eval_steps", s.eval_steps);
  f("global_step", s.global_step);
  f.derived("is_hyper_param_search", false);
  f.derived("is_local_process_zero", true);
  f.derived("is_world_process_zero", true);
  f("log_history", history);
  f("logging_steps", s.logging_steps);
  f("max_steps", s.max_steps);
  f.derived("num_input_tokens_seen", s.tokens_seen);
  f("num_train_epochs", s.num_train_epochs);
  f("save_steps", s.save_steps);
  f("train_batch_size", s.train_batch_size);
  f.derived("trial_name", Json());
  f.derived("trial_params", Json());
  f("lockstep", own);
  if (f.writing()) return;
  if (s.best_metric) f("best_global_step", s.best_global_step);
  for (const auto& entry : history) s.log_history.push_back(entry.dump());
}

bool TrainerState::judge(double metric, bool greater_is_better) {
  const auto better_than = [&](const std::optional<double>& other) {
    return !other || (greater_is_better ? metric > *other : metric < *other);
  };
  if (better_than(best_saved_metric)) worth_saving = Judged{.step = global_step, .metric = metric};
  const bool best = better_than(best_metric);
  evaluations_without_better = best ? 0 : evaluations_without_better + 1;
  if (!best) return false;
  best_metric = metric;
  best_global_step = global_step;
  return true;
}

void TrainerState::saved_as(const std::string& path) {
  if (!worth_saving || worth_saving->step != global_step) return;
  best_model_checkpoint = path;
  best_saved_metric = worth_saving->metric;
}

void TrainerState::compare_by(const std::string& what) {
  const bool same = best_of.empty() || best_of == what;
  best_of = what;
  if (same) return;
  best_metric.reset();
  best_saved_metric.reset();
  worth_saving.reset();
  best_global_step = saves_without_better = evaluations_without_better = 0;
  best_step_at_save = -1;
  best_model_checkpoint.clear();
}

/// What a run counts from, and divides by.
static void require_sound(const TrainerState& s, const std::string& where) {
  const std::pair<const char*, int64_t> counts[] = {
      {"global_step", s.global_step},
      {"updates", s.updates},
      {"tokens_seen", s.tokens_seen},
      {"tokens_computed", s.tokens_computed},
      {"samples_seen", s.samples_seen},
      {"skipped_rows", s.skipped_rows},
      {"loss_steps", s.loss_steps},
      {"cursor.epoch", s.cursor.epoch},
      {"cursor.rows", s.cursor.rows},
      {"since_log.steps", s.since_log.steps},
      {"rows_per_step", s.rows_per_step},
      {"saves_without_better", s.saves_without_better},
      {"world", s.world},
      {"evaluations_without_better", s.evaluations_without_better},
  };
  for (const auto& [key, count] : counts) {
    if (count < 0)
      throw checkpoint_error(fmt::format("{}: {}: expected a number from 0, found {}", where, key, count), kDamaged);
  }
  if (!(s.loss_scale.scale > 0) || !std::isfinite(s.loss_scale.scale)) {
    throw checkpoint_error(
        fmt::format("{}: loss_scale.scale: expected a number above 0, found {}", where, s.loss_scale.scale), kDamaged);
  }
}

Json to_json(const TrainerState& state) { return json_of(state); }

TrainerState trainer_state_from_json(const Json& json, const std::string& where) {
  if (!json.contains("lockstep")) {
    const bool adapter = std::filesystem::exists(std::filesystem::path(where).parent_path() / "adapter_config.json");
    throw checkpoint_error(
        where + ": expected the part \"lockstep\", found a file without it",
        fmt::format("only checkpoints that lockstep wrote can be resumed; take the folder as {} instead",
                    adapter ? "--adapters" : "--model"));
  }
  auto state = record_of<TrainerState>(json, JsonReading::kStrict, where);
  require_sound(state, where);
  return state;
}

}  // namespace lockstep
