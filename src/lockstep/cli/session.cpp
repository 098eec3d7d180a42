#include "lockstep/cli/session.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lockstep/cli/model_fingerprint.h"
#include "lockstep/cli/version.h"
#include "lockstep/comm/together.h"
#include "lockstep/data/text_only_processor.h"
#include "lockstep/model/leave_out.h"
#include "lockstep/plan/compatibility.h"

namespace lockstep {

ModelFolder::ModelFolder(const std::filesystem::path& dir, const std::set<Component>& without)
    : path(dir), config(HfConfig::load(dir)), family(family_of(config)), model(family.build(config)) {
  leave_out(model, without);
}

std::unique_ptr<Processor> ModelFolder::processor() const {
  auto whole = family.processor(path);
  const bool sees = std::ranges::any_of(model.blocks, [](const auto& b) { return b->modality() == Modality::kImage; });
  if (model.left_out.empty() || sees) return whole;
  return text_only_processor(std::move(whole), left_out_reason(model));
}

Dtype ModelFolder::dtype_of_config() const {
  const std::string named = config.text("torch_dtype", config.text("dtype", ""));
  const std::string inner =
      config.at("text_config").text("torch_dtype", config.at("text_config").text("dtype", "float32"));
  return dtype_from_flag(named.empty() ? inner : named);
}

Session::Session(Job& job, const std::string& dir, const RunFlags& flags, const PlanMaker& options) : job_(job) {
  std::string fingerprint;
  together(job.control(), "opening the model", [&] {
    folder_ = std::make_unique<ModelFolder>(dir, flags.without());
    weights_ = std::make_unique<Weights>(Weights::open(dir));
    keys_ = std::make_unique<KeyMap>(KeyMap::match(folder_->model, *weights_));
    processor_ = folder_->processor();
    dtype_ = flags.dtype().value_or(folder_->dtype_of_config());
    plan_ = make_plan(folder_->model, options(folder_->model, dtype_));
    compatibility(folder_->model, plan_).require();
    fingerprint = model_fingerprint(dir);
  });
  agree_on(job.control(),
           {{"version", kVersion}, {"plan", fmt::format("{:016x}", plan_.hash())}, {"model", fingerprint}});
}

void Session::load() {
  together(job_.control(), "loading weights", [&] {
    store_ = std::make_unique<ParamStore>(plan_, job_.world.rank, Devices::one(job_.device));
    store_->load(*weights_, *keys_);
    executor_ = std::make_unique<Executor>(folder_->model, plan_, *store_, job_.data());
  });
}

Session::PlanMaker Session::inference(const Job& job, const RunFlags& flags) {
  return [world = job.world.size, zero = flags.zero()](const Model&, Dtype compute) {
    return PlanOptions{.world = world, .zero = zero, .compute = compute, .training = false};
  };
}

CollateOptions Session::collate() const { return {.pad_token = processor_->pad_token()}; }

}  // namespace lockstep
