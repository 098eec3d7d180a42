#include "lockstep/cli/session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/json.h"
#include "lockstep/cli/model_fingerprint.h"
#include "lockstep/cli/version.h"
#include "lockstep/comm/cuda_library.h"
#include "lockstep/comm/together.h"
#include "lockstep/data/text_only_processor.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/compatibility.h"

namespace lockstep {

ModelFolder::ModelFolder(const std::filesystem::path& dir, const std::set<Component>& without)
    : path(dir), config(HfConfig::load(dir)), family(family_of(config)), model(family.build(config)) {
  leave_out(model, without);
}

bool ModelFolder::sees() const {
  return std::ranges::any_of(model.blocks, [](const auto& b) { return b->modality() == Modality::kImage; });
}

std::unique_ptr<Processor> ModelFolder::processor() const {
  auto whole = family.processor(path);
  if (model.left_out.empty() || sees()) return whole;
  return text_only_processor(std::move(whole), left_out_reason(model));
}

Dtype ModelFolder::dtype_of_config() const {
  const std::string named = config.text("torch_dtype", config.text("dtype", ""));
  const std::string inner =
      config.at("text_config").text("torch_dtype", config.at("text_config").text("dtype", "float32"));
  return dtype_from_flag(named.empty() ? inner : named);
}

namespace {

/// For planning where no rows are known: a row of text, all of it to be learnt.
Features text_row(int64_t tokens) {
  Features row;
  row.input_ids.assign(static_cast<size_t>(tokens), 0);
  row.labels = row.input_ids;
  return row;
}

}  // namespace

Session::Session(Job& job, const std::string& dir, const RunFlags& flags, const PlanMaker& options,
                 const RowsMaker& rows)
    : job_(job), flags_(flags) {
  std::string fingerprint;
  PlanOptions wanted;
  together(job.control(), "opening the model", [&] {
    folder_ = std::make_unique<ModelFolder>(dir, flags.without());
    weights_ = std::make_unique<Weights>(Weights::open(dir));
    keys_ = std::make_unique<KeyMap>(KeyMap::match(folder_->model, *weights_));
    processor_ = folder_->processor();
    dtype_ = flags.dtype().value_or(folder_->dtype_of_config());
    wanted = options(folder_->model, dtype_);
    fingerprint = model_fingerprint(dir);
  });
  place(wanted, rows);
  together(job.control(), "making the plan", [&] {
    plan_ = make_plan(folder_->model, wanted);
    compatibility(folder_->model, plan_).require();
  });
  agree_on(job.control(),
           {{"version", kVersion}, {"plan", fmt::format("{:016x}", plan_.hash())}, {"model", fingerprint}});
}

/// Where the blocks stand; one rank chooses, so that all hold to the same.
void Session::place(PlanOptions& options, const RowsMaker& rows) {
  const RehearsalOptions scene = rehearsal_scene(job_, flags_);
  std::string chosen;
  together(job_.control(), "placing blocks", [&] {
    flags_.placement.check();
    if (!job_.reports()) return;
    const auto window = [&] {
      return rows ? rows(*folder_, *processor_)
                  : RowsOfWindow{{text_row(std::min<int64_t>(512, folder_->model.dims.max_positions))}};
    };
    ChosenPlacement made = choose_placement(scene, flags_, folder_->model, options, window);
    notices_ = std::move(made.notices);
    chosen = placement_json(made.placement).dump();
  });
  options.placement =
      placement_from_json(parse_json(from_rank_0(job_.control(), chosen, "placement"), "the placement"));
}

void Session::load() {
  together(job_.control(), "loading weights", [&] {
    store_ = std::make_unique<ParamStore>(plan_, job_.world.rank, make_devices(job_, flags_, plan_));
    store_->load(*weights_, *keys_);
    executor_ = std::make_unique<Executor>(folder_->model, plan_, *store_, job_.data());
    executor_->watch(hooks());
  });
}

Session::PlanMaker Session::inference(const Job& job, const RunFlags& flags) {
  return [world = job.world.size, zero = flags.zero()](const Model&, Dtype compute) {
    return PlanOptions{.world = world, .zero = zero, .compute = compute, .training = false};
  };
}

ExecutorHooks Session::hooks() {
  ExecutorHooks hooks;
  if (flags_.placement.debug_sync && job_.device != "cpu") hooks.synchronize = require_cuda_library().synchronize;
  if (!flags_.placement.device_log.empty()) {
    const std::string rank = job_.world.size > 1 ? fmt::format(".rank-{}", job_.world.rank) : "";
    device_log_ = std::make_unique<DeviceLog>(flags_.placement.device_log + rank);
    hooks.crossed = [this](const Crossing& crossing) { device_log_->write(crossing); };
  }
  return hooks;
}

CollateOptions Session::collate() const { return {.pad_token = processor_->pad_token()}; }

}  // namespace lockstep
