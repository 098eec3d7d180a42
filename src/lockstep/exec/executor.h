// Runs the Plan: leases parameters, runs each block on its device, and on the way back is the chain rule between
// blocks.
//
// The order of gathers and reductions is a function of the Plan and of what is present *anywhere*, never of this rank's
// batch. Blocks on several devices are a pipeline: its stages take the micro-batches of a window in 1F1B order.
//
// Example:
//   Executor executor(model, plan, store, comm);
//   const TrainOutput out = executor.train(window);              // gradients stand in the store
//   Flow out = executor.forward(batch.flow, {.logits = LogitsWanted::kLast}, here, anywhere);
//   executor.forward(parts, anywhere);    // several batches, each block's parameters gathered once for all
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/exec/border.h"
#include "lockstep/exec/media_trace.h"
#include "lockstep/exec/residency.h"
#include "lockstep/model/model.h"
#include "lockstep/plan/pipeline.h"
#include "lockstep/state/grad_reducer.h"

namespace lockstep {

/// Device-resident scalars (no synchronisation): summed loss * loss_weight (f32), argmax hits (i64), and the summed loss of codes
/// of speech * speech_loss_weight. Undefined without rows, or without speech.
struct TrainOutput {
  Tensor loss, correct, speech_loss;
};

/// What one micro-batch of a window brings.
struct TrainInput {
  Flow flow;
  Context context;
  Modalities here, anywhere;  // which the micro-batch holds, on this rank and on any; empty: no rows
};

/// A batch on its way through a pass that it shares with others: its tensors never meet theirs.
struct SubBatch {
  Flow flow;  // inputs before the pass, outputs after it
  Context context;
  Modalities modalities = Modality::kText;
  std::vector<std::string> media_slots =
      {};  // of the inputs, those that follow from the media alone; empty: never mind
  /// What blocks that see those alone have made of the same media, which then do not run; null: what they make is put here.
  std::shared_ptr<const MediaOutputs> media = {};
};

/// All that the parts hold.
inline Modalities modalities_of(std::span<const SubBatch> parts) {
  Modalities all;
  for (const SubBatch& part : parts) all |= part.modalities;
  return all;
}

/// How far a forward pass goes.
enum class Extent {
  kWhole,
  kInputs,  // to the embeddings that enter the decoder, media merged in: "hidden"
};

class Executor {
 public:
  Executor(const Model& model, const Plan& plan, ParamStore& store, Communicator& comm);

  /// Forward and backward of a window of micro-batches, whose flows are taken; gradients are reduced into the store.
  /// The sum of what they give. Collective: every rank brings as many.
  TrainOutput train(std::span<TrainInput> window);
  TrainOutput train(Flow inputs, const Context& context, Modalities here, Modalities anywhere);

  /// Forward alone, without gradients: the flow after the last block ("logits", or "loss" and "correct" when labels are
  /// there). Empty when this rank has no rows. Collective.
  Flow forward(Flow inputs, const Context& context, Modalities here, Modalities anywhere);

  /// The same for several parts at once, or none: this rank then only lends its shards. Collective.
  void forward(std::span<SubBatch> parts, Modalities anywhere, Extent extent = Extent::kWhole);

  GradReducer& grads() { return grads_; }

  void watch(ExecutorHooks hooks) { border_.watch(std::move(hooks)); }

 private:
  struct Taped {
    Flow in, out;
    bool ran = false;
  };
  /// A micro-batch on its way.
  struct UnderWay {
    TrainInput* input = nullptr;
    size_t number = 0;
    Flow flow, edges;
    std::vector<Taped> tape;  // by step
    Lease last;               // of the last block of all: its backward comes at once
    TrainOutput output;
  };
  std::vector<const Step*> active_steps(Modalities anywhere, size_t begin, size_t end) const;
  size_t index_of(const Step& step) const { return static_cast<size_t>(&step - plan_.steps.data()); }
  const Block& block_of(const Step& step) const;
  void stand_at(MemoryPhase phase, const Step& step) const;
  void drop_unread(Flow& flow, const Step& step) const;
  Flow run(const Step& step, const Lease& lease, const Flow& in, const Context& context, bool record) const;
  void forward_stage(UnderWay& batch, size_t stage);
  void backward_stage(UnderWay& batch, size_t stage);
  void run_back(UnderWay& batch, const Step& step, Lease& lease);
  std::vector<Tensor> differentiate(const Step& step, const Taped& taped, const Lease& lease, Flow& edges) const;
  void reduce(const Step& step, const std::vector<Tensor>& param_grads, size_t micro_batch);

  const Model& model_;
  const Plan& plan_;
  ParamStore& store_;
  Residency residency_;
  GradReducer grads_;
  Recorder& recorder_;
  Border border_;
  std::vector<StageRange> stages_;
  std::vector<std::vector<std::string>> last_reads_;  // by block: slots that no later block reads
};

}  // namespace lockstep
