#include "lockstep/infer/decode_batch.h"

#include <algorithm>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

std::vector<Features> features_of(const std::vector<Prompt>& prompts) {
  std::vector<Features> out;
  out.reserve(prompts.size());
  for (const auto& prompt : prompts) out.push_back(prompt.features);
  return out;
}

int64_t capacity_of(const std::vector<Prompt>& prompts, int64_t max_new_tokens) {
  size_t longest = 0;
  for (const auto& prompt : prompts) longest = std::max(longest, prompt.features.input_ids.size());
  return static_cast<int64_t>(longest) + max_new_tokens;
}

}  // namespace

DecodeBatch::DecodeBatch(const ModelDims& dims, std::vector<Prompt> prompts, const GenerateOptions& options)
    : dims_(dims), options_(options), cache_(dims.layers, capacity_of(prompts, options.max_new_tokens)) {
  CollateOptions collate_options = options.collate;
  collate_options.left_pad = true;
  Batch batch = collate(features_of(prompts), collate_options);
  image_ = batch.has_image;
  const int64_t width = *std::max_element(batch.lengths.begin(), batch.lengths.end());
  std::vector<int64_t> visible;
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (int64_t t = 0; t < width; ++t) visible.push_back(t >= width - batch.lengths[i] ? 1 : 0);
    results_.push_back({.row = prompts[i].row, .tokens = {}});
    live_.push_back(
        {i, batch.lengths[i], batch.next_positions[i] - batch.lengths[i], std::move(prompts[i].features.input_ids)});
  }
  visible_ = to_dtype(from_values(visible, {static_cast<int64_t>(live_.size()), width}), Dtype::kBool);
  prompt_ = std::move(batch.flow);
}

Flow DecodeBatch::inputs() {
  if (!started_) {
    started_ = true;
    return std::exchange(prompt_, {});
  }
  std::vector<int64_t> ids, positions;
  for (const auto& live : live_) {
    ids.push_back(live.seen.back());
    positions.push_back(live.length - 1 + live.offset);
  }
  const auto rows = static_cast<int64_t>(live_.size());
  Flow flow{{"input_ids", from_values(ids, {rows, 1})}, {"positions", from_values(positions, {rows, 1})}};
  flow.set("mask", visible_.view({rows, 1, 1, visible_.size(1)}));
  return flow;
}

void DecodeBatch::take(const Tensor& logits) {
  check(logits.dim() == 2 && logits.size(0) == static_cast<int64_t>(live_.size()), "logits of every live row");
  const Tensor host = to_dtype(logits, Dtype::kF32).cpu().contiguous();
  const auto vocab = static_cast<size_t>(host.size(1));
  auto* values = host.mutable_data_ptr<float>();
  std::vector<int64_t> kept;
  for (size_t i = 0; i < live_.size(); ++i) {
    Live& live = live_[i];
    const Generated& result = results_[live.result];
    const int32_t token = next_token({values + i * vocab, vocab}, live.seen, options_.sampling,
                                     {.row = result.row, .position = static_cast<int64_t>(result.tokens.size())});
    if (accept(live, token)) kept.push_back(static_cast<int64_t>(i));
  }
  drop_finished(kept);
}

/// Whether the row goes on.
bool DecodeBatch::accept(Live& live, int32_t token) {
  Generated& result = results_[live.result];
  const auto& stops = options_.stop_tokens;
  result.stopped = std::find(stops.begin(), stops.end(), token) != stops.end();
  if (result.stopped) return false;
  result.tokens.push_back(token);
  live.seen.push_back(token);
  ++live.length;
  if (options_.on_token) options_.on_token(result.row, token);
  const bool room = dims_.max_positions <= 0 || live.length < dims_.max_positions;
  return room && static_cast<int64_t>(result.tokens.size()) < options_.max_new_tokens;
}

void DecodeBatch::drop_finished(const std::vector<int64_t>& kept) {
  if (kept.size() < live_.size()) {
    std::vector<Live> rest;
    rest.reserve(kept.size());
    for (const int64_t i : kept) rest.push_back(std::move(live_[static_cast<size_t>(i)]));
    live_ = std::move(rest);
    if (live_.empty()) return;
    const Tensor rows = from_values(kept, {static_cast<int64_t>(kept.size())});
    cache_.keep_rows(rows);
    visible_ = visible_.index_select(0, rows);
  }
  visible_ = at::cat({visible_, full({visible_.size(0), 1}, 1, Dtype::kBool)}, 1);
}

}  // namespace lockstep
