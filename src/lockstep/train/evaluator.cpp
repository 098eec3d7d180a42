#include "lockstep/train/evaluator.h"

#include <array>

#include <ATen/core/Tensor.h>

#include "lockstep/tensor/make.h"
#include "lockstep/train/window.h"

namespace lockstep {
namespace {

/// Summed loss and argmax hits of one micro-batch on this rank.
std::array<double, 2> run(Executor& executor, MicroBatch& micro, int64_t loss_chunk) {
  const Context context{.training = true, .loss_weight = 1.0, .loss_chunk = loss_chunk};
  const Flow out = executor.forward(std::move(micro.flow), context, micro.here, micro.anywhere);
  if (!micro.here.rows) return {0, 0};
  return {out["loss"].item<double>(), static_cast<double>(out["correct"].item<int64_t>())};
}

}  // namespace

namespace {

LossFigures run_evaluation(Executor& executor, Loader& loader, const CollateOptions& collate, Communicator& data,
                           Communicator& control, const EvaluateOptions& options) {
  loader.seek({});
  // Never ends an epoch by itself: an empty window is the end.
  WindowReader reader(loader, data, control, {.collate = collate, .rows_per_epoch = INT64_MAX});
  LossFigures figures;
  std::array<double, 2> sums{};
  for (Window window = reader.next(1); !window.micro_batches.empty(); window = reader.next(1)) {
    figures.rows += window.rows;
    figures.skipped += window.skipped;
    figures.target_tokens += window.target_tokens;
    MicroBatch& micro = window.micro_batches[0];
    if (!micro.anywhere.rows) continue;
    const auto mine = run(executor, micro, options.loss_chunk);
    sums[0] += mine[0];
    sums[1] += mine[1];
    if (options.progress) options.progress(figures.rows);
  }
  if (control.size() > 1) control.all_reduce_sum(view_memory(sums.data(), {2}, Dtype::kF64), "evaluation figures");
  if (figures.target_tokens > 0) {
    figures.loss = sums[0] / static_cast<double>(figures.target_tokens);
    figures.token_accuracy = sums[1] / static_cast<double>(figures.target_tokens);
  }
  return figures;
}

}  // namespace

LossFigures evaluate_loss(Executor& executor, Loader& loader, const CollateOptions& collate, Communicator& data,
                          Communicator& control, const EvaluateOptions& options) {
  return control.recorder().confessing(
      [&] { return run_evaluation(executor, loader, collate, data, control, options); });
}

}  // namespace lockstep
