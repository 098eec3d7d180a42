// The micro-batches of one optimizer step: loaded, collated, and agreed on with the other ranks before any is trained.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/failure.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/step_contract.h"
#include "lockstep/data/loader.h"
#include "lockstep/exec/executor.h"
#include "lockstep/model/batch.h"
#include "lockstep/train/admission.h"

namespace lockstep {

struct MicroBatch {
  Flow flow;
  Modalities here, anywhere;
  std::vector<int64_t> rows = {};      // of the data set
  std::vector<int64_t> row_ends = {};  // of rows behind one another
  std::vector<int64_t> lengths = {};   // of each row, tokens
};

struct Window {
  std::vector<MicroBatch> micro_batches;
  int64_t target_tokens = 0, input_tokens = 0, rows = 0, speech_targets = 0, skipped = 0;  // over all ranks
  bool stop = false;   // some rank wishes to stop: honoured by all before this window is trained
  LoaderCursor after;  // where the next window begins
};

class WindowReader {
 public:
  struct Options {
    CollateOptions collate;
    bool one_epoch = false;             // an empty window is its end; else the next begins by itself
    uint64_t plan_hash = 0;             // compared at each micro-batch, as is the fingerprint of `data`
    std::function<bool()> stop_wanted;  // asked once a micro-batch
    Admission* admission = nullptr;     // decides which rows fit in memory together; none: all do
    bool strict = false;                // a row that does not fit is an error instead of skipped and counted
  };
  WindowReader(Loader& loader, Communicator& data, Communicator& control, Options options);

  /// Up to `size` micro-batches, each in as many parts as it must be run in; fewer at the end of an epoch, after which
  /// it begins the next by itself (but for one_epoch). A row that one rank cannot use under --strict is thrown on all ranks. Collective.
  Window next(int64_t size);
  /// The last row that did not fit in memory by itself; "" when all did.
  const std::string& last_refused() const { return last_refused_; }

 private:
  /// Rows of a micro-batch, in parts that fit in memory.
  struct Parts {
    std::deque<std::vector<Features>> batches;
    int64_t skipped = 0;
  };
  bool add(Window& window);
  Parts admitted(LoadedBatch& loaded);
  bool add_part(Window& window, Parts& parts, std::optional<Failure> failure);

  Loader& loader_;
  Communicator& data_;
  Communicator& control_;
  Options options_;
  std::string last_refused_;
};

}  // namespace lockstep
