#include "lockstep/state/trainer_state.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

Json optional_text(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json lockstep_part(const TrainerState& s) {
  return {{"updates", s.updates},
          {"tokens_seen", s.tokens_seen},
          {"samples_seen", s.samples_seen},
          {"skipped_rows", s.skipped_rows},
          {"total_loss", s.total_loss},
          {"cursor", {{"epoch", s.cursor.epoch}, {"rows", s.cursor.rows}}},
          {"loss_scale",
           {{"scale", s.loss_scale.scale},
            {"steps", s.loss_scale.steps},
            {"last_overflow", s.loss_scale.last_overflow},
            {"hysteresis", s.loss_scale.hysteresis}}},
          {"since_log",
           {{"loss", s.since_log.loss},
            {"steps", s.since_log.steps},
            {"correct_tokens", s.since_log.correct_tokens},
            {"target_tokens", s.since_log.target_tokens}}},
          {"seed", s.seed},
          {"world", s.world},
          {"zero_stage", s.zero_stage},
          {"dataset_fingerprint", s.dataset_fingerprint}};
}

void read_lockstep_part(const Json& own, TrainerState& s) {
  own.at("updates").get_to(s.updates);
  own.at("tokens_seen").get_to(s.tokens_seen);
  own.at("samples_seen").get_to(s.samples_seen);
  own.at("skipped_rows").get_to(s.skipped_rows);
  own.at("total_loss").get_to(s.total_loss);
  own.at("cursor").at("epoch").get_to(s.cursor.epoch);
  own.at("cursor").at("rows").get_to(s.cursor.rows);
  const Json& scale = own.at("loss_scale");
  scale.at("scale").get_to(s.loss_scale.scale);
  scale.at("steps").get_to(s.loss_scale.steps);
  scale.at("last_overflow").get_to(s.loss_scale.last_overflow);
  scale.at("hysteresis").get_to(s.loss_scale.hysteresis);
  const Json& log = own.at("since_log");
  log.at("loss").get_to(s.since_log.loss);
  log.at("steps").get_to(s.since_log.steps);
  log.at("correct_tokens").get_to(s.since_log.correct_tokens);
  log.at("target_tokens").get_to(s.since_log.target_tokens);
  own.at("seed").get_to(s.seed);
  own.at("world").get_to(s.world);
  own.at("zero_stage").get_to(s.zero_stage);
  own.at("dataset_fingerprint").get_to(s.dataset_fingerprint);
}

}  // namespace

Json to_json(const TrainerState& s) {
  Json history = Json::array();
  for (const auto& entry : s.log_history) history.push_back(Json::parse(entry));
  return {{"best_global_step", s.best_metric ? Json(s.best_global_step) : Json(nullptr)},
          {"best_metric", s.best_metric ? Json(*s.best_metric) : Json(nullptr)},
          {"best_model_checkpoint", optional_text(s.best_model_checkpoint)},
          {"epoch", s.epoch},
          {"eval_steps", s.eval_steps},
          {"global_step", s.global_step},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", true},
          {"is_world_process_zero", true},
          {"log_history", history},
          {"logging_steps", s.logging_steps},
          {"max_steps", s.max_steps},
          {"num_input_tokens_seen", s.tokens_seen},
          {"num_train_epochs", s.num_train_epochs},
          {"save_steps", s.save_steps},
          {"train_batch_size", s.train_batch_size},
          {"trial_name", nullptr},
          {"trial_params", nullptr},
          {"lockstep", lockstep_part(s)}};
}

TrainerState trainer_state_from_json(const Json& json, const std::string& where) {
  TrainerState s;
  try {
    if (!json.contains("lockstep")) {
      throw checkpoint_error(where + ": expected the part \"lockstep\", found a file without it",
                             "only checkpoints that lockstep wrote can be resumed; take the folder as --model instead");
    }
    json.at("global_step").get_to(s.global_step);
    json.at("max_steps").get_to(s.max_steps);
    json.at("epoch").get_to(s.epoch);
    json.at("num_train_epochs").get_to(s.num_train_epochs);
    json.at("logging_steps").get_to(s.logging_steps);
    json.at("save_steps").get_to(s.save_steps);
    json.at("eval_steps").get_to(s.eval_steps);
    json.at("train_batch_size").get_to(s.train_batch_size);
    for (const auto& entry : json.at("log_history")) s.log_history.push_back(entry.dump());
    if (!json.at("best_metric").is_null()) {
      s.best_metric = json.at("best_metric").get<double>();
      json.at("best_global_step").get_to(s.best_global_step);
    }
    if (json.at("best_model_checkpoint").is_string()) json.at("best_model_checkpoint").get_to(s.best_model_checkpoint);
    read_lockstep_part(json.at("lockstep"), s);
  } catch (const Json::exception& error) {
    throw checkpoint_error(fmt::format("{}: {}", where, error.what()), "was it edited by hand?");
  }
  return s;
}

}  // namespace lockstep
