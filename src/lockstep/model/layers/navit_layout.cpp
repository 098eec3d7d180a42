// N slices, P patches.
#include "lockstep/model/layers/navit_layout.h"

#include <algorithm>
#include <cmath>
#include <span>

#include <ATen/core/Tensor.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/device_memory.h"
#include "lockstep/tensor/gpus.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Tensor column(const std::vector<int64_t>& values) {
  return from_values(std::span<const int64_t>(values), {static_cast<int64_t>(values.size())});
}

/// torch.arange in float32, whose steps are counted in double: a whole block is made of runs of lanes, each from a first that is
/// rounded already; what is left over stands alone.
std::vector<float> stepped(double begin, double step, int64_t count) {
  constexpr int64_t kLanes = 8, kBlock = 2 * kLanes;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t lane = i < count / kBlock * kBlock ? i % kLanes : 0;
    const auto first = static_cast<float>(begin + step * static_cast<double>(i - lane));
    values.push_back(static_cast<float>(static_cast<double>(first) + step * static_cast<double>(lane)));
  }
  return values;
}

/// What the slices of a batch give, patch by patch.
struct Places {
  std::vector<int64_t> on_table, rows, columns, ends;
  int64_t longest = 0;  // rows or columns of a slice

  void add(const PatchGrid& grid, int64_t side) {
    const std::vector<int64_t> down = table_places(grid.rows, side), across = table_places(grid.columns, side);
    for (int64_t y = 0; y < grid.rows; ++y) {
      for (int64_t x = 0; x < grid.columns; ++x) {
        on_table.push_back(down[static_cast<size_t>(y)] * side + across[static_cast<size_t>(x)]);
        rows.push_back(y);
        columns.push_back(x);
      }
    }
    ends.push_back(static_cast<int64_t>(rows.size()));
    longest = std::max({longest, grid.rows, grid.columns});
  }
};

}  // namespace

std::vector<PatchGrid> patch_grids_of(const Tensor& grid_N2) {
  const Tensor host = grid_N2.cpu().contiguous();
  const auto* values = host.const_data_ptr<int64_t>();
  std::vector<PatchGrid> grids;
  for (int64_t i = 0; i < host.size(0); ++i) grids.push_back({values[2 * i], values[2 * i + 1]});
  return grids;
}

std::vector<int64_t> table_places(int64_t count, int64_t side) {
  const double unit = 1.0 / static_cast<double>(side);
  const std::vector<float> borders = stepped(unit, unit, side - 1);
  const auto step = static_cast<double>(1.0F / static_cast<float>(count));
  std::vector<int64_t> places;
  for (const float begin : stepped(0.0, step, count)) {
    places.push_back(std::upper_bound(borders.begin(), borders.end(), begin) - borders.begin());
  }
  return places;
}

Tensor place_waves(int64_t count, int64_t width) {
  const int64_t half = width / 2;
  std::vector<float> values(static_cast<size_t>(count * width));
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(i) / static_cast<float>(half);
    const float frequency = 1.0F / std::pow(10000.0F, exponent);
    for (int64_t place = 0; place < count; ++place) {
      const float angle = static_cast<float>(place) * frequency;
      values[static_cast<size_t>(place * width + i)] = std::sin(angle);
      values[static_cast<size_t>(place * width + half + i)] = std::cos(angle);
    }
  }
  return from_values(std::span<const float>(values), {count, width});
}

NavitLayout::NavitLayout(std::string name, int64_t table_side, int64_t wave_width)
    : Block(std::move(name), Component::kVision, kPictures), side_(table_side), width_(wave_width) {
  reads({"patch_grid"});
  writes({"patch_places", "slice_ends", "patch_rows", "patch_columns", "place_waves"});
  never_recompute();
}

Flow NavitLayout::forward(const Params&, const Flow& in, const Context&) const {
  const auto& here = *DeviceMemory::current();  // the grid is the host's to read
  const c10::Device device = here.rehearsed() ? in["patch_grid"].device() : c10::Device(here.torch_device());
  Places places;
  for (const PatchGrid& grid : patch_grids_of(in["patch_grid"])) {
    check(grid.rows > 0 && grid.columns > 0, "slices have patches");
    places.add(grid, side_);
  }
  const auto waves = [&] {  // how large the table is matters alone where a run is rehearsed
    if (!here.rehearsed()) return sent_to(place_waves(places.longest, width_), device);
    return empty({places.longest, width_}, Dtype::kF32, "meta");
  };
  return {{"patch_places", sent_to(column(places.on_table), device)},
          {"slice_ends", column(places.ends)},
          {"patch_rows", sent_to(column(places.rows), device)},
          {"patch_columns", sent_to(column(places.columns), device)},
          {"place_waves", waves()}};
}

}  // namespace lockstep
