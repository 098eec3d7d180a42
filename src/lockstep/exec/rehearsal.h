// A step without bytes: the same store, executor and optimizer on tensors that have shapes and nothing else, counted as
// real ones are. So what is predicted is what the code does, for every family, stage and placement; there are no
// formulas that could fall behind it.
//
// Example:
//   const MemoryForecast forecast = rehearse(model, plan, step_rows, {.transport = "shm"});
//   const std::vector<BlockCost> costs = block_costs(model, options, step_rows, {});     // what device maps are made from
#pragma once

#include <string>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/model.h"
#include "lockstep/plan/block_cost.h"
#include "lockstep/plan/memory_forecast.h"
#include "lockstep/plan/plan.h"

namespace lockstep {

/// The rows of one rank, by micro-batch of a step. Media need a shape and facts, no values.
using RowsOfStep = std::vector<std::vector<Features>>;

/// What a run does with its rows.
struct RowWork {
  RowLayout layout = RowLayout::kRightPadded;  // of a batch; a prompt of an answer stands alone
  bool noise = false;                          // on embeddings, in training
  // Where nothing is trained:
  int64_t answer_tokens = 0;  // of each answer that is generated; 0: none are
  int64_t codes = 0;          // of each that is said as well; 0: none is
};

struct RehearsalOptions {
  bool on_cpu = true;             // the device is this machine's CPU, whose memory is the host's
  bool virtual_devices = false;   // on_cpu, but devices are parts of the host's memory
  std::string transport = "shm";  // between ranks: "shm", "gloo", "nccl"
  int64_t loss_chunk = 512;
  double label_smoothing = 0;
  bool alike = false;                 // the micro-batches: those behind the ones that make the peak only wait
  RowsOfStep evaluation{};            // batches that are evaluated; empty: the first micro-batch of each step
  bool save = true, evaluate = true;  // phases besides
  RowWork work{};
  int64_t context_bytes = 0;  // of each device, that the process's runtime takes beside tensors
  int64_t waiting_bytes = 0;  // in the host's memory, of rows that are ready and wait: RehearsedRows::waiting_bytes()
  std::vector<std::string> device_names;
  std::vector<int64_t> capacities;  // bytes of each device; empty: not known

  bool host_is_device() const { return on_cpu && !virtual_devices; }
};

MemoryForecast rehearse(const Model& model, const Plan& plan, const RowsOfStep& step_rows,
                        const RehearsalOptions& options);
/// Of steps of one run whose rows are of several kinds: the most that any of them needs, by device and phase.
MemoryForecast rehearse(const Model& model, const Plan& plan, const std::vector<RowsOfStep>& steps,
                        const RehearsalOptions& options);

/// What each block costs, were all on one device. Of a run that trains nothing, keys and values of answers count as what
/// the block keeps.
std::vector<BlockCost> block_costs(const Model& model, const PlanOptions& options, const RowsOfStep& step_rows,
                                   const RehearsalOptions& rehearsal);
/// The most over steps whose rows are of several kinds.
std::vector<BlockCost> block_costs(const Model& model, const PlanOptions& options, const std::vector<RowsOfStep>& steps,
                                   const RehearsalOptions& rehearsal);

}  // namespace lockstep
