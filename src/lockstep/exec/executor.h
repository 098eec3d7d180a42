// Runs the Plan: leases parameters, runs each block, and on the way back is the chain rule between blocks.
//
// The order of gathers and reductions is a function of the Plan and of what is present *anywhere*, never of this rank's
// batch.
//
// Example:
//   Executor executor(model, plan, store, comm);
//   const TrainOutput out = executor.train(batch.flow, context, here, anywhere);   // gradients stand in the store
//   Flow logits = executor.forward(prompt, {.logits = LogitsWanted::kLast, .cache = &cache}, here, anywhere);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/exec/residency.h"
#include "lockstep/model/model.h"
#include "lockstep/state/grad_reducer.h"

namespace lockstep {

/// Which modalities a micro-batch holds, on this rank or on any.
struct Presence {
  bool rows = false, image = false;
  bool has(Modality modality) const { return modality == Modality::kImage ? image : rows; }
};

/// Device-resident scalars (no synchronisation): summed loss * loss_weight (f32), argmax hits (i64). Undefined without
/// rows.
struct TrainOutput {
  Tensor loss, correct;
};

class Executor {
 public:
  Executor(const Model& model, const Plan& plan, ParamStore& store, Communicator& comm);

  /// Forward and backward of one micro-batch; gradients are reduced into the store. Collective.
  TrainOutput train(Flow inputs, const Context& context, Presence here, Presence anywhere);

  /// Forward alone, without gradients: the flow after the last block ("logits", or "loss" and "correct" when labels are
  /// there). Empty when this rank has no rows. Collective.
  Flow forward(Flow inputs, const Context& context, Presence here, Presence anywhere);

  GradReducer& grads() { return grads_; }

 private:
  struct Taped {
    Flow in, out;
    bool ran = false;
  };
  std::vector<const Step*> active_steps(Presence anywhere) const;
  const std::string& name_of(const Step& step) const;
  Flow run(const Step& step, const Lease& lease, const Flow& in, const Context& context, bool record) const;
  void backward(const std::vector<const Step*>& steps, std::vector<Taped>& tape, Lease last, const Context& context,
                bool has_loss);
  std::vector<Tensor> differentiate(const Step& step, const Taped& taped, const Lease& lease, Flow& edges) const;
  void reduce(const Step& step, const std::vector<Tensor>& param_grads);

  const Model& model_;
  const Plan& plan_;
  Residency residency_;
  GradReducer grads_;
  Recorder& recorder_;
};

}  // namespace lockstep
