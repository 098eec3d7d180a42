// A model opened for work: config, family, processor, weights, plan, and what holds and runs it on this rank. Three
// steps, so that whatever is wrong shows before anything costly is done: open, decide, load.
//
// Example:
//   Session session(job, options);                    // the folder is read, names and shapes match
//   session.decide(session.inference());              // placed, planned, compared with the other ranks
//   session.load();                                   // this rank's weights are in memory
//   session.executor().forward(…);
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/exec/device_log.h"
#include "lockstep/exec/executor.h"
#include "lockstep/exec/rehearsal.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/key_map.h"
#include "lockstep/model/weights.h"
#include "lockstep/session/job.h"
#include "lockstep/session/memory_meter.h"
#include "lockstep/session/model_folder.h"
#include "lockstep/session/rendering.h"
#include "lockstep/state/adapter_folder.h"
#include "lockstep/state/checkpoint_model.h"

namespace lockstep {

class SharedMemory;

/// A folder of RunOptions::adapters, over the session's model.
struct OpenedAdapter {
  std::shared_ptr<const AdapterFolder> folder;
  AdapterMatch match;
  std::shared_ptr<const AdapterLayout> layout;  // by the name that rows call it
};

class Session {
 public:
  /// Opens the folder, matches names and shapes, and compares how rows are rendered with what a checkpoint keeps of it.
  /// Borrows `job`. Collective; what fails on one rank is thrown on all.
  Session(Job& job, RunOptions options);

  /// Of a run that trains nothing, for decide().
  PlanOptions inference() const;

  /// How adapters name the modules of this folder's model.
  Dialect naming() const { return naming_of_adapters(folder_->model, keys_->dialect()); }
  /// Begins with fresh adapters: before decide().
  void adapt(AdapterLayout layout);
  /// Those that the model is run with: RunOptions::adapters, or fresh ones; null: none.
  const std::shared_ptr<const AdapterLayout>& adapters() const { return adapters_; }
  /// Matrices that are kept as codes; null: none.
  const std::shared_ptr<const Quantisation>& quantised() const { return quantised_; }
  /// Adapters that have names, which rows may choose among: how many, and with which a row is answered; nullopt: with none.
  /// Throws UserError(kData) naming them: it asks for what there is not.
  size_t num_choices() const;
  std::optional<size_t> adapter_of(const Sample& row) const;
  /// For a checkpoint of them.
  AdapterFiles adapter_files() const;

  /// Places blocks, makes the plan and compares it with the other ranks. `rows`: of a step, which a device map is made
  /// for, and `work`: what is done with them where nothing is trained; looked at on rank 0, empty: a row of text.
  /// Collective.
  void decide(PlanOptions options, const RowsOfStep& rows = {}, const RowWork& work = {});

  /// The plan again, with so many blocks on each device that keep what they made: before load(). Collective.
  void keep_blocks(int blocks);

  /// Whether decide() makes a device map, and so looks at rows.
  bool makes_map() const;

  /// Reads this rank's slices of the weights; fresh adapters are drawn from `seed`. A run that trains nothing is refused first, with UserError(kMemory), where
  /// they alone need more than this machine has; one that trains has a forecast for that (session/room.h). Collective.
  void load(uint64_t seed = 42);

  /// What weights that stand in memory once take of it, and this rank's part; none where they do not.
  SharedBytes shared_bytes() const;
  /// What the devices held at most, beside what was predicted where a device map was made: of a run that trains nothing,
  /// at its end. Collective.
  void tell_memory(const EventBus& events);

  Job& job() { return job_; }
  const RunOptions& options() const { return options_; }
  const ModelFolder& folder() const { return *folder_; }
  const Model& model() const { return folder_->model; }
  const Processor& processor() const { return *processor_; }
  const Plan& plan() const { return plan_; }
  const std::vector<std::string>& notices() const { return notices_; }  // of decide(), on the rank that reports
  void tell_notices(const EventBus& events) const;
  Dtype dtype() const { return dtype_; }                     // of the computation
  Json identity() const;                                     // of the model as it is run: what any output depends on
  const Rendering& rendering() const { return rendering_; }  // on the rank that reports
  const Weights& weights() const { return *weights_; }
  const KeyMap& keys() const { return *keys_; }
  ParamStore& store() { return *store_; }
  Executor& executor() { return *executor_; }
  CollateOptions collate() const;

 private:
  void make_plan(const PlanOptions& options);
  void open_adapters();
  bool has_several() const { return opened_.size() > 1; }
  void check_several() const;
  void compare_spelling();
  void choose_codes();
  void load_weights(uint64_t seed);
  void load_merged();
  MemoryForecast weights_on_gpu() const;
  void check_room();
  void place(PlanOptions& options, const RowsOfStep& rows, const RowWork& work);
  ExecutorHooks hooks();

  Job& job_;
  RunOptions options_;
  std::unique_ptr<ModelFolder> folder_;
  std::unique_ptr<Processor> processor_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<KeyMap> keys_;
  std::vector<OpenedAdapter> opened_;
  std::shared_ptr<const AdapterLayout> adapters_;  // of several the first
  std::shared_ptr<const Quantisation> quantised_;
  Dtype dtype_ = Dtype::kF32;
  std::string fingerprint_;  // of the folder's files
  Rendering rendering_;
  Plan plan_;
  std::vector<std::string> notices_;
  std::shared_ptr<SharedMemory> shared_;  // for the weights, where the ranks read them in one place
  std::unique_ptr<ParamStore> store_;
  std::unique_ptr<DeviceLog> device_log_;
  std::unique_ptr<Executor> executor_;
  MemoryAccount predicted_;  // on rank 0, where decide() has made a map for a run that trains nothing
  std::optional<MemoryMeter> meter_;
};

}  // namespace lockstep
