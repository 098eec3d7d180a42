// Flags that all verbs share which run a model: where it is, in which dtype and ZeRO stage, and on which ranks.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/env.h"
#include "lockstep/base/json.h"
#include "lockstep/cli/placement_flags.h"
#include "lockstep/comm/setup.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/processor.h"
#include "lockstep/guard/diagnosis.h"
#include "lockstep/model/block.h"
#include "lockstep/plan/zero.h"
#include "lockstep/tensor/spec.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's name
class App;
}  // namespace CLI

namespace lockstep {

struct RunFlags {
  std::string model, torch_dtype, deepspeed, transport = "auto", device = "auto";
  int nproc = 0;  // 0: NPROC_PER_NODE, else one a GPU, else one
  std::string patience = "600", guard = "default";
  double soft_patience = 3;
  int max_restarts = 0;
  std::string comm_figures = "kind";
  std::vector<std::string> no_build;
  PlacementFlags placement;
  std::set<Component> without() const;  // --no_build; throws UserError(kUsage)
  JudgeOptions judge() const;           // throws UserError(kUsage)
  /// For one that waits for data itself: longer than the roll call, which speaks first.
  int64_t data_patience_s() const;

  /// zero3 unless asked otherwise: alone it costs nothing, among several ranks it needs the least memory.
  ZeroStage zero() const;
  /// --offload, or what --deepspeed says of it.
  bool offloads_optimizer() const;
  bool offloads_params() const;
  std::optional<Dtype> dtype() const;  // nullopt: what config.json says
};
void add_run_flags(CLI::App& app, RunFlags& flags);

struct RowFlags {
  int64_t max_length = 0;
  std::string truncation_strategy = "delete";
  bool strict = false;
  uint64_t seed = 42;
  int num_workers = 1;
  MediaOptions media;

  ProcessOptions process() const;
  DatasetOptions dataset(const Env& env) const;  // ROOT_IMAGE_DIR is read there
  Json as_json() const;                          // what rows become depends on it: for comparing runs
};
void add_row_flags(CLI::App& app, RowFlags& flags);

/// What every flag of the app is now, given or default, as args.json keeps it.
Json flags_as_json(const CLI::App& app);

}  // namespace lockstep
