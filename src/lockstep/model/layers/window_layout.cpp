// N media, P patches, M tokens (merged patches), H head size.
#include "lockstep/model/layers/window_layout.h"

#include <algorithm>
#include <span>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/model/layers/axis_rope.h"
#include "lockstep/model/layers/tap.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Tensor column(const std::vector<int64_t>& values) {
  return from_values(std::span<const int64_t>(values), {static_cast<int64_t>(values.size())});
}

/// Row and column of every patch as the processor lays them, [2,P]: block by block, frame by frame.
Tensor places_of(const std::vector<Grid>& grids, int64_t merge) {
  std::vector<int64_t> rows, columns;
  for (const auto& [frames, high, wide] : grids) {
    for (int64_t i = 0; i < frames * high * wide; ++i) {
      const int64_t in_frame = i % (high * wide), block = in_frame / (merge * merge),
                    inner = in_frame % (merge * merge);
      rows.push_back(block / (wide / merge) * merge + inner / merge);
      columns.push_back(block % (wide / merge) * merge + inner % merge);
    }
  }
  const auto patches = static_cast<int64_t>(rows.size());
  rows.insert(rows.end(), columns.begin(), columns.end());
  return from_values(std::span<const int64_t>(rows), {2, patches});
}

std::vector<int64_t> patches_of(const std::vector<int64_t>& tokens, int64_t unit) {
  std::vector<int64_t> patches;
  patches.reserve(tokens.size() * static_cast<size_t>(unit));
  for (const int64_t token : tokens) {
    for (int64_t i = 0; i < unit; ++i) patches.push_back(token * unit + i);
  }
  return patches;
}

std::vector<int64_t> inverse_of(const std::vector<int64_t>& order) {
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

}  // namespace

std::vector<Grid> grids_of(const Tensor& grid_N3) {
  const Tensor host = grid_N3.cpu().contiguous();
  const auto* values = host.const_data_ptr<int64_t>();
  std::vector<Grid> grids;
  for (int64_t i = 0; i < host.size(0); ++i) grids.push_back({values[3 * i], values[3 * i + 1], values[3 * i + 2]});
  return grids;
}

WindowOrder window_order(const std::vector<Grid>& grids, int64_t merge, int64_t window) {
  WindowOrder order;
  int64_t first = 0, patches = 0;  // of the frame
  for (const auto& [frames, grid_high, grid_wide] : grids) {
    check(grid_high % merge == 0 && grid_wide % merge == 0, "grids of whole blocks");
    const int64_t high = grid_high / merge, wide = grid_wide / merge;
    for (int64_t frame = 0; frame < frames; ++frame) {
      for (int64_t top = 0; top < high; top += window) {
        for (int64_t left = 0; left < wide; left += window) {
          const int64_t bottom = std::min(high, top + window), right = std::min(wide, left + window);
          for (int64_t y = top; y < bottom; ++y) {
            for (int64_t x = left; x < right; ++x) order.tokens.push_back(first + y * wide + x);
          }
          patches += (bottom - top) * (right - left) * merge * merge;
          order.window_ends.push_back(patches);
        }
      }
      first += high * wide;
      order.frame_ends.push_back(patches);
    }
  }
  return order;
}

WindowLayout::WindowLayout(std::string name, int64_t merge, int64_t window, RopeConfig rope)
    : Block(std::move(name), Component::kVision, kPictures), merge_(merge), window_(window), rope_(std::move(rope)) {
  reads({"grid_thw"});
  writes({"patch_order", "token_order", "window_ends", "frame_ends", "vision_cos", "vision_sin"});
  never_recompute();
}

Flow WindowLayout::forward(const Params&, const Flow& in, const Context& context) const {
  const auto& here = *DeviceMemory::current();  // the grid is the host's to read
  const c10::Device device = here.rehearsed() ? in["grid_thw"].device() : c10::Device(here.torch_device());
  const std::vector<Grid> grids = grids_of(in["grid_thw"]);
  const WindowOrder order = window_order(grids, merge_, window_);
  const Tensor patch_order_P = column(patches_of(order.tokens, merge_ * merge_));
  Tensor places_2P = places_of(grids, merge_);
  if (here.rehearsed()) places_2P = places_2P.to(c10::kMeta);  // how large tables are matters alone
  const auto [cos_PH, sin_PH] = axis_rope(places_2P.index_select(1, patch_order_P), rope_);
  const auto there = [&](const Tensor& made) { return made.is_meta() ? made : sent_to(made, device); };
  if (context.tap) {
    std::vector<int64_t> bounds{0};
    bounds.insert(bounds.end(), order.window_ends.begin(), order.window_ends.end());
    tap(context, "window_index", column(order.tokens));
    tap(context, "cu_window_seqlens", column(bounds));
  }
  return {{"patch_order", sent_to(patch_order_P, device)},
          {"token_order", sent_to(column(inverse_of(order.tokens)), device)},
          {"window_ends", column(order.window_ends)},
          {"frame_ends", column(order.frame_ends)},
          {"vision_cos", there(cos_PH.unsqueeze(0))},
          {"vision_sin", there(sin_PH.unsqueeze(0))}};
}

}  // namespace lockstep
