// Gradients of a block -> summed over ranks into the shard of their owner, in fixed segments through a small ring of
// staging buffers, overlapping with the backward of the next block.
//
// Every rank calls add() for the same units in the same order; a rank that did not run the block adds nothing (zeros).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/state/param_store.h"

namespace lockstep {

class GradReducer {
 public:
  GradReducer(ParamStore& store, Communicator& comm);
  ~GradReducer();

  /// grads: one a parameter of the unit, undefined = zero; or empty. Tied units are summed locally until their last
  /// use in the micro-batch, of which several may be under way.
  void add(int unit, std::span<const Tensor> grads, size_t micro_batch = 0);
  /// Ends a micro-batch: reduces tied units whose other uses did not come, waits for everything.
  void finish_micro_batch(size_t micro_batch = 0);
  /// Forgets gradients, and what a pass that was cut short has left: before the next step. Waits for what is under way.
  void clear();

  /// Sum of squares of this rank's shards of touched units, an f64 number; not finite when any value is not. Where they
  /// stand on GPUs it does too, and the host has not waited.
  Tensor local_sum_of_squares() const;

  /// The parameter whose gradient, as this rank computed it before any sum over ranks, was the first that is not finite
  /// since clear(); "" when all were. Synchronises with the device: for when the sum is known to be bad.
  std::string first_not_finite() const;

 private:
  /// A stretch of the unit's flat gradient; what no slice covers is zero.
  struct Slice {
    int64_t offset;
    Tensor flat;
  };
  struct InFlight {
    Pending pending;
    Tensor staged;
  };
  struct LocalSum {  // one value a gradient, which is not finite when any of its is not
    int unit;
    size_t param;
    Tensor value;
  };
  struct Local {  // a tied unit between its uses in a micro-batch
    Tensor sum;   // f32, flat over the unit
    int seen = 0;
  };
  void look_at(int unit, size_t param, const Tensor& flat);
  std::string name_of(int unit, size_t param) const;
  std::vector<Slice> slices_of(int unit, std::span<const Tensor> grads);
  /// part := elements [begin, begin + part.numel()) of the unit's flat gradient.
  static void fill_part(const Tensor& part, int64_t begin, const std::vector<Slice>& slices);
  void add_tied(int unit, const std::vector<Slice>& slices, size_t micro_batch);
  void reduce(int unit, const std::vector<Slice>& slices, Dtype staging_dtype);
  void reduce_alone(int unit, const std::vector<Slice>& slices);
  void drain(size_t keep);

  ParamStore& store_;
  Communicator& comm_;
  std::deque<InFlight> in_flight_;
  std::vector<LocalSum> local_sums_;               // of this step, on a GPU
  std::string not_finite_;                         // on a CPU: the first one
  std::map<std::pair<size_t, int>, Local> local_;  // by micro-batch and unit
};

}  // namespace lockstep
