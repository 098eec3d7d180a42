#include "lockstep/model/layers/projector.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/features.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/fn.h"

namespace lockstep {

Projector::Projector(std::string name, ProjectorConfig config)
    : Block(std::move(name), Component::kProjector, kPictures), config_(std::move(config)) {
  const auto features = static_cast<int64_t>(config_.slots.size()) * config_.vision_hidden;
  param("linear_1.weight", {config_.text_hidden, features});
  if (config_.bias) param("linear_1.bias", {config_.text_hidden});
  if (!config_.single) param("linear_2.weight", {config_.text_hidden, config_.text_hidden});
  if (!config_.single && config_.bias) param("linear_2.bias", {config_.text_hidden});
  reads(config_.slots);
  writes({"media"});
}

Flow Projector::forward(const Params& params, const Flow& in, const Context& context) const {
  std::vector<Tensor> selected;
  for (const auto& slot : config_.slots) selected.push_back(in[slot]);
  const Tensor whole = selected.size() == 1 ? selected.front() : at::cat(selected, -1);
  tap(context, "vision_feature_layer", whole);
  const Tensor x_NPD = config_.drop_class_token ? whole.narrow(1, 1, whole.size(1) - 1) : whole;
  Tensor media = params.linear("linear_1", x_NPD);
  if (!config_.single) media = params.linear("linear_2", fn::activation(config_.activation, media));
  tap(context, "projector", media);
  return {{"media", std::move(media)}};
}

MergeMedia::MergeMedia(std::string name, MergeConfig config)
    : Block(std::move(name), config.component, config.runs_on), config_(std::move(config)) {
  reads({"hidden", config_.features, index_slot(config_.slot)});
  writes({"hidden"});
  never_recompute();
}

Flow MergeMedia::forward(const Params&, const Flow& in, const Context&) const {
  const Tensor &media = in[config_.features], &index = in[index_slot(config_.slot)];
  const int64_t rows = media.numel() / media.size(-1);
  if (rows != index.size(0)) {
    throw data_error(fmt::format("the media of the batch ({}) give {} features, the tokens hold {} placeholders",
                                 runs_on().names(), rows, index.size(0)),
                     "the processor's files (patch size, merging, additional tokens) do not fit the tower");
  }
  return {{"hidden", fn::scatter_rows(in["hidden"], media, index)}};
}

}  // namespace lockstep
