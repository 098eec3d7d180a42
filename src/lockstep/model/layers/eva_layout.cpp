// N pictures, P patches of one.
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/model/layers/eva_vision.h"
#include "lockstep/model/layers/navit_layout.h"
#include "lockstep/model/layers/place_table.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Tensor column(const std::vector<int64_t>& values) {
  return from_values(std::span<const int64_t>(values), {static_cast<int64_t>(values.size())});
}

Tensor matrix(const std::vector<float>& values, int64_t columns) {
  return from_values(std::span<const float>(values), {static_cast<int64_t>(values.size()) / columns, columns});
}

Dtype dtype_named(const std::string& name) {
  if (name == "bfloat16") return Dtype::kBF16;
  return name == "float16" ? Dtype::kF16 : Dtype::kF32;
}

}  // namespace

EvaLayout::EvaLayout(std::string name, EvaLayoutConfig config)
    : Block(std::move(name), Component::kVision, kPictures), config_(std::move(config)) {
  reads({"pixel_values"});
  writes({"position_weights", "slice_ends", "patch_rows", "patch_columns", "place_waves", "query_waves"});
  never_recompute();
}

Flow EvaLayout::forward(const Params&, const Flow& in, const Context&) const {
  const Tensor& pixels = in["pixel_values"];
  const auto& here = *DeviceMemory::current();
  const c10::Device device = here.rehearsed() ? pixels.device() : c10::Device(here.torch_device());
  const int64_t edge = config_.edge, patches = edge * edge;
  std::vector<int64_t> ends, rows, columns;
  for (int64_t i = 0; i < pixels.size(0); ++i) {
    for (int64_t at = 0; at < patches; ++at) {
      rows.push_back(at / edge);
      columns.push_back(at % edge);
    }
    ends.push_back((i + 1) * patches);
  }
  const auto table = [&](int64_t height, int64_t width, const auto& make) {  // its size matters alone in a rehearsal
    return here.rehearsed() ? empty({height, width}, Dtype::kF32, "meta") : sent_to(make(), device);
  };
  // What the files hold of the queries' places is rounded; those of the keys are interpolated from it.
  const auto query_waves = [&] {
    const Tensor exact = place_waves(config_.query_edge, config_.wave_width);
    return to_dtype(to_dtype(exact, dtype_named(config_.stored_as)), Dtype::kF32);
  };
  const auto place_waves_of = [&] {
    if (config_.query_edge == edge) return query_waves();
    return matrix(bicubic_weights(config_.query_edge, edge, false), config_.query_edge).matmul(query_waves());
  };
  return {{"position_weights",
           table(edge, config_.table_edge,
                 [&] { return matrix(bicubic_weights(config_.table_edge, edge, true), config_.table_edge); })},
          {"slice_ends", column(ends)},
          {"patch_rows", sent_to(column(rows), device)},
          {"patch_columns", sent_to(column(columns), device)},
          {"place_waves", table(edge, config_.wave_width, place_waves_of)},
          {"query_waves", table(config_.query_edge, config_.wave_width, query_waves)}};
}

}  // namespace lockstep
