// N pictures, P patches of one.
#include <algorithm>
#include <cmath>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/model/layers/eva_vision.h"
#include "lockstep/model/layers/navit_layout.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

/// Keys' convolution, which is 1 at 0 and 0 at the other whole numbers.
double curve(double distance, double a) {
  const double x = std::abs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

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

std::vector<float> bicubic_weights(int64_t from, int64_t to, bool smooth) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double wide = smooth ? std::max(scale, 1.0) : 1.0, a = smooth ? -0.5 : -0.75;
  std::vector<float> weights(static_cast<size_t>(from * to), 0.0F);
  for (int64_t row = 0; row < to; ++row) {
    const double center = scale * (static_cast<double>(row) + 0.5) - 0.5;
    const auto first = static_cast<int64_t>(std::floor(center - 2 * wide)),
               last = first + 2 + static_cast<int64_t>(std::ceil(4 * wide));
    double sum = 0;
    for (int64_t at = first; at <= last; ++at)
      sum += !smooth || (at >= 0 && at < from) ? curve((static_cast<double>(at) - center) / wide, a) : 0.0;
    for (int64_t at = first; at <= last; ++at) {
      if (smooth && (at < 0 || at >= from))
        continue;  // what stands outside has no say; otherwise the last value goes on
      const int64_t place = std::clamp<int64_t>(at, 0, from - 1);
      weights[static_cast<size_t>(row * from + place)] +=
          static_cast<float>(curve((static_cast<double>(at) - center) / wide, a) / sum);
    }
  }
  return weights;
}

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
