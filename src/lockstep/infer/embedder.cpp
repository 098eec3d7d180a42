// T tokens of a row, D model.
#include "lockstep/infer/embedder.h"

#include <array>
#include <cmath>
#include <exception>
#include <optional>
#include <span>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/step_contract.h"
#include "lockstep/comm/together.h"
#include "lockstep/infer/not_finite.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Tensor pooled(const Tensor& states_TD, Pooling pooling) {
  if (pooling == Pooling::kMean) return states_TD.mean(0);
  return states_TD.select(0, pooling == Pooling::kLast ? states_TD.size(0) - 1 : 0);
}

std::vector<float> values_of(const Tensor& value) {
  const Tensor flat = value.contiguous();
  const auto* from = flat.const_data_ptr<float>();
  return {from, from + flat.numel()};
}

}  // namespace

void Embedder::run(Loader& loader, const EmbedOptions& options, const Sinks& sinks) {
  const at::NoGradGuard quiet;
  EmbedOptions packed = options;
  packed.collate.layout = RowLayout::kPacked;
  std::optional<Failure> failure;
  while (true) {
    std::optional<LoadedBatch> loaded;
    Batch batch;
    const auto guarded = [&](const auto& work) {
      try {
        work();
      } catch (const std::exception& error) {
        failure = describe_failure(error);
      }
    };
    guarded([&] {
      const PhaseScope scope(control_.recorder(), Phase::kData, loader.next_places());
      loaded = loader.next();
      if (loaded) batch = collate(loaded->rows, packed.collate);
    });
    if (!loaded && !failure) break;  // the rows are over, on all ranks at this call
    Agreement agreed{.modalities = batch.modalities, .stop = failure.has_value()};
    if (gathers_) {
      agreed =
          agree(control_, {.modalities = batch.modalities.bits(), .rows = batch.rows, .stop = failure.has_value()});
    }
    if (agreed.stop) break;
    const auto work = [&] { run_batch(*loaded, std::move(batch), packed, sinks, agreed.modalities); };
    // Where passes are collective an error within one ends them everywhere; else the others go on to the end.
    if (gathers_) {
      work();
    } else {
      guarded(work);
      if (failure) break;
    }
  }
  agree_no_failure(control_, "rows to embed", failure);
}

void Embedder::run_batch(const LoadedBatch& loaded, Batch batch, const EmbedOptions& options, const Sinks& sinks,
                         Modalities anywhere) {
  for (const auto& row : loaded.skipped) sinks.skipped(row);
  std::vector<SubBatch> parts;
  if (batch.rows > 0) parts.push_back({.flow = std::move(batch.flow), .context = {}, .modalities = batch.modalities});
  if (anywhere.empty()) return;
  executor_.forward(parts, anywhere, options.extent);
  if (parts.empty()) return;
  const bool inputs = options.extent == Extent::kInputs;
  const Tensor all_TD =
      to_dtype(parts[0].flow[inputs ? "hidden" : "last_hidden_state"].select(0, 0), Dtype::kF32).cpu();
  int64_t begin = 0;
  for (size_t r = 0; r < loaded.rows.size(); ++r) {
    const int64_t tokens = batch.lengths[r];
    Tensor value = all_TD.narrow(0, begin, tokens);
    begin += tokens;
    if (!inputs) value = pooled(value, options.pooling);
    if (!std::isfinite(value.sum().item<float>())) {
      throw UserError(ExitCode::kNumerics,
                      fmt::format("{}: the model computes NaN or infinity", loaded.rows[r].sample.where),
                      kNotFiniteHint);
    }
    if (options.normalize) value = value.div(value.norm(2, -1, /*keepdim=*/true).clamp_min(1e-12));
    sinks.embedded(
        {.row = loaded.rows[r].sample.row, .tokens = tokens, .width = value.size(-1), .values = values_of(value)});
  }
}

}  // namespace lockstep
