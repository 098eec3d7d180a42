// Gradients of a block -> summed over ranks into the shard of their owner, in fixed segments through a small ring of staging
// buffers, overlapping with the backward of the next block.
//
// Every rank calls add() for the same units in the same order; a rank that did not run the block adds nothing (zeros).
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

class GradReducer {
 public:
  GradReducer(ParamStore& store, Communicator& comm);
  ~GradReducer();

  /// grads: one a parameter of the unit, undefined = zero; or empty. Tied units are summed locally until their last use.
  void add(int unit, std::span<const Tensor> grads);
  /// Ends a micro-batch: reduces tied units whose other uses did not come, waits for everything.
  void finish_micro_batch();
  /// Forgets gradients: before the next step.
  void clear();

  /// Sum of squares of this rank's shards of touched units, f64; and whether all values are finite is seen in the sum.
  double local_sum_of_squares() const;
  double wait_seconds() const { return wait_seconds_; }

 private:
  struct InFlight {
    Pending pending;
    Tensor staged;
  };
  struct Local {  // a tied unit between its uses
    Tensor sum;
    int seen = 0;
    bool any = false;
  };
  void reduce(int unit, std::span<const Tensor> grads);
  void stage(int unit, std::span<const Tensor> grads, Range within_shard, const Tensor& staged) const;
  void add_alone(int unit, std::span<const Tensor> grads);
  void drain(size_t keep);

  ParamStore& store_;
  Communicator& comm_;
  int64_t segment_;
  std::deque<InFlight> in_flight_;
  std::vector<Local> local_;
  double wait_seconds_ = 0;
};

}  // namespace lockstep
