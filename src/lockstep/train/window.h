// The micro-batches of one optimizer step: loaded, collated, and agreed on with the other ranks before any is trained.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/step_contract.h"
#include "lockstep/data/loader.h"
#include "lockstep/exec/executor.h"
#include "lockstep/model/batch.h"

namespace lockstep {

struct MicroBatch {
  Flow flow;
  Presence here, anywhere;
};

struct Window {
  std::vector<MicroBatch> micro_batches;
  int64_t target_tokens = 0, input_tokens = 0, rows = 0, skipped = 0;  // over all ranks
  bool stop = false;   // some rank wishes to stop: honoured by all after this window
  LoaderCursor after;  // where the next window begins
};

class WindowReader {
 public:
  struct Options {
    CollateOptions collate;
    int64_t rows_per_epoch = 0;
    uint64_t plan_hash = 0;             // compared at each micro-batch, as is the fingerprint of `data`
    std::function<bool()> stop_wanted;  // asked once a micro-batch
  };
  WindowReader(Loader& loader, Communicator& data, Communicator& control, Options options);

  /// Up to `size` micro-batches; fewer at the end of an epoch, after which it begins the next by itself. A row that one
  /// rank cannot use under --strict is thrown on all ranks. Collective.
  Window next(int64_t size);

 private:
  bool add(Window& window);

  Loader& loader_;
  Communicator& data_;
  Communicator& control_;
  Options options_;
};

}  // namespace lockstep
