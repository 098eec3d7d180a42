#include "lockstep/tasks/resume_check.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json.h"
#include "lockstep/model/fingerprint.h"
#include "lockstep/session/adapter_base.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/state/checkpoint.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// Without what a checkpoint writes anew: the dtype of its weights, and who wrote it.
Json comparable(Json config) {
  for (const char* name : {"torch_dtype", "dtype", "transformers_version", "_name_or_path"}) config.erase(name);
  for (auto& [key, value] : config.items()) {
    if (value.is_object()) value = comparable(std::move(value));
  }
  return config;
}

constexpr const char* kBase = "base_fingerprint";

/// Its tensors find their modules in any base of the same sizes.
void check_same_base(const ResumeRequest& request) {
  const fs::path path = request.checkpoint / "args.json";
  if (!fs::exists(path)) return;
  const Json args = read_json(path);
  if (!args.is_object() || !args.contains(kBase)) return;
  const std::string codes = quant_of_adapter(request.checkpoint).describe();
  if (codes != request.codes) {
    throw usage_error(fmt::format("{} was trained over matrices of another kind: {} there, {} here",
                                  request.checkpoint.string(), codes, request.codes),
                      "give the --quant_bits, and what belongs to it, that the run began with");
  }
  const std::string now = model_fingerprint(request.model);
  if (args.at(kBase) == now) return;
  throw usage_error(fmt::format("{} is of another base than --model {}: {} there, {} here", request.checkpoint.string(),
                                request.model.folder.string(), args.at(kBase).dump(), now),
                    "give the --model that the run began with, and its --new_special_tokens and "
                    "--pretrain_mm_mlp_adapter where it had any; or "
                    "take the adapter with --adapters to begin afresh on this one");
}

void check_same_model(const ResumeRequest& request) {
  if (is_adapter_folder(request.checkpoint)) return check_same_base(request);
  const fs::path &folder = request.model.folder, ours = request.checkpoint / "config.json";
  std::error_code ignored;
  if (!fs::exists(folder / "config.json") || fs::equivalent(folder, request.checkpoint, ignored)) return;
  const HfConfig config = load_config(request.model);
  Json given = comparable(config.json()), saved = comparable(read_json(ours));
  const Family::Elsewhere& elsewhere = family_of(config).elsewhere;
  if (given.contains(
          elsewhere.named_by)) {  // the checkpoint says anew where that part stands: in itself, once it was trained
    for (Json* side : {&given, &saved}) {
      side->erase(elsewhere.named_by);
      side->erase(elsewhere.sizes_in);
    }
  }
  for (const auto* side : {&saved, &given}) {
    for (const auto& [key, value] : side->items()) {
      const Json in_given = given.value(key, Json()), in_saved = saved.value(key, Json());
      if (in_given == in_saved) continue;
      throw usage_error(fmt::format("{} is of another model than --model {}: \"{}\" is {:.60} there and {:.60} here",
                                    request.checkpoint.string(), request.model.folder.string(), key, in_saved.dump(),
                                    in_given.dump()),
                        "give the --model that the run began with, or no --resume_from_checkpoint");
    }
  }
}

std::string words_of(const RowOrder& order) {
  return order.shuffle ? fmt::format("shuffled by seed {}", order.data_seed) : "in the order of the files";
}

}  // namespace

TrainerState check_resume(const ResumeRequest& request) {
  check_same_model(request);
  TrainerState state = read_trainer_state(request.checkpoint);
  if (!state.order) return state;  // of a version that did not say: its fingerprint was of less, too
  const bool same_order = state.order->shuffle == request.order.shuffle &&
                          (!request.order.shuffle || state.order->data_seed == request.order.data_seed);
  if (!same_order) {
    throw usage_error(fmt::format("{} has its rows {}, now they would be {}: some would be lost, others repeated",
                                  request.checkpoint.string(), words_of(*state.order), words_of(request.order)),
                      "give the same --seed, --data_seed and --dataset_shuffle; to begin anew with others, take the "
                      "checkpoint as --model");
  }
  if (state.dataset_fingerprint != request.rows) {
    throw data_error(
        fmt::format("{} was trained on other rows: expected fingerprint {}, found {}", request.checkpoint.string(),
                    state.dataset_fingerprint, request.rows),
        "give the same --dataset files, not a byte other, and the same --split_dataset_ratio; to go on with "
        "others, take the checkpoint as --model");
  }
  return state;
}

void require_same_groups(const fs::path& checkpoint, const TrainerState& before, const RowOrder& now) {
  if (!before.order || before.order->groups == now.groups) return;
  const auto words = [](const std::string& groups) { return groups.empty() ? "one by one" : groups; };
  throw usage_error(
      fmt::format("{} has its rows {}, now they would be {}: some would be lost, others repeated", checkpoint.string(),
                  words(before.order->groups), words(now.groups)),
      "give the same --packing, --packing_length, --packing_strategy, --group_by_length, --max_length, "
      "--truncation_strategy and media variables; to begin anew with others, take the checkpoint as --model");
}

std::string with_base(const std::string& args_json, const ModelPlace& model) {
  Json args = parse_json_or_discard(args_json);
  if (!args.is_object()) return args_json;
  args[kBase] = model_fingerprint(model);
  args["new_special_tokens"] = model.new_tokens;  // themselves, not the files that list them
  return args.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string resume_changes(const TrainerState& before, const TrainerState& now) {
  if (now.global_step >= now.max_steps) {
    return fmt::format("the checkpoint has {} steps already, of {} in all: nothing is left to train", now.global_step,
                       now.max_steps);
  }
  std::string out;
  const auto tell = [&](const char* what, auto was, auto is) {
    if (was != is) out += fmt::format("{}{} {} (was {})", out.empty() ? "" : ", ", is, what, was);
  };
  tell("ranks", before.world, now.world);
  if (before.rows_per_step > 0) tell("rows a step", before.rows_per_step, now.rows_per_step);
  tell("as ZeRO stage", before.zero_stage, now.zero_stage);
  tell("as seed", before.seed, now.seed);
  tell("steps in all", before.max_steps, now.max_steps);
  if (before.best_metric && !before.best_of.empty()) {
    tell("as the best evaluation, which there is none of yet", before.best_of, now.best_of);
  }
  if (!before.order)
    out += fmt::format("{}an old checkpoint, which does not say how its rows were drawn", out.empty() ? "" : ", ");
  if (out.empty()) return out;
  return fmt::format("goes on with {}: the rows of epoch {} that were not yet seen come next, {} of it are done", out,
                     before.cursor.epoch + 1, before.cursor.rows);
}

}  // namespace lockstep
