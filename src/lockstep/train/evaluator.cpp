#include "lockstep/train/evaluator.h"

#include <cstring>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "lockstep/train/window.h"

namespace lockstep {
namespace {

/// Summed loss and argmax hits of one micro-batch.
struct BatchSums {
  double loss = 0, correct = 0, speech_loss = 0;
};

BatchSums run(Executor& executor, MicroBatch& micro, const EvaluateOptions& options) {
  const Context context{.training = true,
                        .loss_weight = 1.0,
                        .loss_chunk = options.loss_chunk,
                        .label_smoothing = options.label_smoothing};
  const Flow out = executor.forward(std::move(micro.flow), context, micro.here, micro.anywhere);
  if (micro.here.empty()) return {};
  const Tensor* speech_loss = out.find("speech_loss");
  return {out["loss"].item<double>(), static_cast<double>(out["correct"].item<int64_t>()),
          speech_loss == nullptr ? 0.0 : speech_loss->item<double>()};
}

/// Over all ranks, in the order of the data: the loader deals micro-batches to ranks in turn, so the same additions are
/// made whatever the number of ranks, and the figures are the same to the bit.
BatchSums total(Communicator& control, const std::vector<BatchSums>& mine) {
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(BatchSums));
  const auto all = control.all_gather_bytes(bytes, "evaluation figures");
  BatchSums sum;
  for (size_t i = 0; i < mine.size(); ++i) {  // as many on every rank
    for (const auto& rank : all) {
      BatchSums one;
      std::memcpy(&one, rank.data() + i * sizeof(BatchSums), sizeof(BatchSums));
      sum.loss += one.loss;
      sum.correct += one.correct;
      sum.speech_loss += one.speech_loss;
    }
  }
  return sum;
}

LossFigures run_evaluation(Executor& executor, Loader& loader, const CollateOptions& collate, Communicator& data,
                           Communicator& control, const EvaluateOptions& options) {
  loader.seek({});
  WindowReader reader(loader, data, control,
                      {.collate = collate, .one_epoch = true, .stop_wanted = options.stop_wanted});
  LossFigures figures;
  int64_t codes = 0;
  std::vector<BatchSums> mine;
  for (Window window = reader.next(1); !window.micro_batches.empty(); window = reader.next(1)) {
    figures.stopped = window.stop;
    if (figures.stopped) return figures;
    figures.rows += window.rows;
    figures.skipped += window.skipped;
    figures.target_tokens += window.target_tokens;
    codes += window.speech_targets;
    MicroBatch& micro = window.micro_batches[0];
    mine.push_back(micro.anywhere.empty() ? BatchSums{} : run(executor, micro, options));
    if (!micro.anywhere.empty() && options.progress) options.progress(figures.rows);
  }
  const BatchSums sum = total(control, mine);
  if (figures.target_tokens > 0) {
    figures.loss = sum.loss / static_cast<double>(figures.target_tokens);
    figures.token_accuracy = sum.correct / static_cast<double>(figures.target_tokens);
  }
  if (codes > 0) {
    figures.talker_loss = sum.speech_loss / static_cast<double>(codes);
    figures.loss += options.talker_loss_weight * figures.talker_loss;
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
