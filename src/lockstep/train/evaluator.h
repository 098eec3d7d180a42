// Loss and token accuracy over a data set, forward only; every row counts once, whatever rank it falls to.
//
// Example:
//   const LossFigures figures = evaluate_loss(executor, loader, collate, control, {.loss_chunk = 512});
#pragma once

#include <cstdint>
#include <functional>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/loader.h"
#include "lockstep/exec/executor.h"
#include "lockstep/model/batch.h"

namespace lockstep {

struct LossFigures {
  double loss = 0, token_accuracy = -1;  // means per target token; accuracy -1 without any
  double talker_loss = -1;               // mean per code of speech, -1 without any; loss holds it, weighted
  int64_t rows = 0, skipped = 0, target_tokens = 0;
  bool stopped = false;  // before its end, as some rank wished: no figures
};

struct EvaluateOptions {
  int64_t loss_chunk = 512;
  double label_smoothing = 0;
  double talker_loss_weight = 1.0;
  std::function<void(int64_t rows_done)> progress;
  std::function<bool()> stop_wanted = {};  // asked once a micro-batch; empty: it goes to its end
};

/// Runs the loader from the start of its epoch 0 to the end. The same bits whatever the number of ranks, for the same
/// micro-batches. Throws on all ranks what one rank's data threw.
/// Collective.
LossFigures evaluate_loss(Executor& executor, Loader& loader, const CollateOptions& collate, Communicator& data,
                          Communicator& control, const EvaluateOptions& options = {});

}  // namespace lockstep
