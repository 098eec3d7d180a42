// A model opened for work: config, family, processor, weights, plan, and what holds and runs it on this rank.
//
// Example:
//   Session session(job, flags.model, flags, Session::inference(job, flags));
//   session.load();
//   session.executor().forward(…);
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "lockstep/cli/device_log.h"
#include "lockstep/cli/job.h"
#include "lockstep/cli/placement.h"
#include "lockstep/exec/executor.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/hf_config.h"
#include "lockstep/model/weights.h"
#include "lockstep/state/checkpoint_model.h"
#include "lockstep/zoo/registry.h"

namespace lockstep {

/// What is known of a model folder without its weights.
struct ModelFolder {
  /// `without`: components that are not built. Throws UserError(kCheckpoint, kUsage).
  explicit ModelFolder(const std::filesystem::path& dir, const std::set<Component>& without = {});

  std::filesystem::path path;
  HfConfig config;
  const Family& family;
  Model model;
  Dtype dtype_of_config() const;
  bool sees() const;                             // a tower for pictures is built
  std::unique_ptr<Processor> processor() const;  // refuses rows that need what is not built
};

class Session {
 public:
  /// Also the place to refuse what does not fit the model: nothing has been loaded by then.
  using PlanMaker = std::function<PlanOptions(const Model& model, Dtype compute)>;
  /// The rows of a step that memory is planned for; asked on rank 0.
  using RowsMaker = std::function<RowsOfWindow(const ModelFolder& folder, const Processor& processor)>;

  /// Opens the folder, matches names and shapes, makes the plan and compares it with the other ranks. `flags` say in
  /// which dtype and without which components. Collective; what fails on one rank is thrown on all.
  Session(Job& job, const std::string& dir, const RunFlags& flags, const PlanMaker& options,
          const RowsMaker& rows = {});

  /// Reads this rank's slices of the weights. Collective.
  void load();

  Job& job() { return job_; }
  const ModelFolder& folder() const { return *folder_; }
  const Model& model() const { return folder_->model; }
  const Processor& processor() const { return *processor_; }
  const Plan& plan() const { return plan_; }
  /// What a step is said to need: of the rank that reports, when it has been predicted.
  const MemoryForecast& forecast() const { return forecast_; }
  void set_forecast(MemoryForecast forecast) { forecast_ = std::move(forecast); }
  const std::vector<std::string>& notices() const { return notices_; }
  Dtype dtype() const { return dtype_; }  // of the computation
  const Weights& weights() const { return *weights_; }
  const KeyMap& keys() const { return *keys_; }
  ParamStore& store() { return *store_; }
  Executor& executor() { return *executor_; }
  CollateOptions collate() const;

  /// The plan of a run that trains nothing.
  static PlanMaker inference(const Job& job, const RunFlags& flags);

 private:
  Job& job_;
  std::unique_ptr<ModelFolder> folder_;
  std::unique_ptr<Processor> processor_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<KeyMap> keys_;
  void place(PlanOptions& options, const RowsMaker& rows);
  ExecutorHooks hooks();

  const RunFlags flags_;
  Plan plan_;
  MemoryForecast forecast_;
  std::vector<std::string> notices_;
  Dtype dtype_ = Dtype::kF32;
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<DeviceLog> device_log_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace lockstep
