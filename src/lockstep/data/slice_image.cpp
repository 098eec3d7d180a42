#include "lockstep/data/slice_image.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/image_keys.h"

namespace lockstep {
namespace {

using Levels = std::array<std::array<float, 256>, 3>;

/// The nearest multiple of `unit`, at least one; halves go to the even multiple, as Python rounds.
int64_t fitted(double length, int64_t unit) {
  return std::max<int64_t>(1, std::llrint(length / static_cast<double>(unit))) * unit;
}

double area_of_slice(const SliceImageConfig& config) {
  return static_cast<double>(config.resolution) * static_cast<double>(config.resolution);
}

/// Edges in whole patches. A picture that is larger than a slice, or `grows`, takes the pixels of one.
PictureSize best_size(double width, double height, bool grows, const SliceImageConfig& config) {
  if (grows || width * height > area_of_slice(config)) {
    const double ratio = width / height;
    height = std::trunc(static_cast<double>(config.resolution) / std::sqrt(ratio));
    width = std::trunc(height * ratio);
  }
  return {fitted(width, config.patch), fitted(height, config.patch)};
}

/// One of 256 values for each channel, in NumPy's float32.
Levels levels_of(const SliceImageConfig& config) {
  Levels levels{};
  for (size_t c = 0; c < levels.size(); ++c) {
    for (size_t v = 0; v < levels[c].size(); ++v) {
      levels[c][v] =
          (static_cast<float>(v) / 255.0F - static_cast<float>(config.mean[c])) / static_cast<float>(config.std[c]);
    }
  }
  return levels;
}

/// Part of a picture as rows of patches.
MediaBlock block_of(const Image& image, PictureSize origin, PictureSize size, int64_t patch, const Levels& levels) {
  const int64_t rows = size.height / patch, columns = size.width / patch;
  MediaBlock block{.shape = {rows * columns, 3 * patch * patch}, .facts = {{kPatchGrid, {rows, columns}}}};
  block.values.reserve(static_cast<size_t>(rows * columns * 3 * patch * patch));
  for (int64_t p = 0; p < rows * columns; ++p) {
    const int64_t top = origin.height + p / columns * patch, left = origin.width + p % columns * patch;
    for (size_t c = 0; c < levels.size(); ++c) {
      for (int64_t y = top; y < top + patch; ++y) {
        const uint8_t* row = &image.pixels[static_cast<size_t>((y * image.width + left) * 3)] + c;
        for (int64_t x = 0; x < patch; ++x) block.values.push_back(levels[c][row[3 * x]]);
      }
    }
  }
  return block;
}

/// Products of sizes that a file states are made as doubles, which cannot overflow.
void check_size(PictureSize size, double count, int64_t patch, const std::string& where) {
  constexpr int64_t kLongest = 16384;  // in patches: towers make a table of so many places
  if (std::max(size.width, size.height) / patch > kLongest) {
    throw data_error(
        fmt::format("{}: expected slices of at most {} patches an edge, found {}x{} pixels in patches of {}", where,
                    kLongest, size.width, size.height, patch),
        "the picture is too long and thin");
  }
  const double pixels = static_cast<double>(size.width) * static_cast<double>(size.height) * count;
  if (pixels <= static_cast<double>(kMaxImagePixels)) return;
  throw data_error(fmt::format("{}: expected slices of at most {} pixels in all, found {:.0f} of {}x{}", where,
                               kMaxImagePixels, count, size.width, size.height),
                   "a smaller MAX_SLICE_NUMS makes fewer slices");
}

}  // namespace

SliceImageConfig read_slice_image_config(const Json& json, const std::string& where) {
  const ImageKeys keys(json, where);
  SliceImageConfig config;
  const auto read = [&](const char* key, int64_t& value, int64_t most) {
    if (const Json* found = keys.find(key)) value = keys.pixels(key, *found, most);
  };
  read("patch_size", config.patch, 1024);
  read("scale_resolution", config.resolution, 65536);
  read("max_slice_nums", config.max_slices, kMostTiles);
  keys.read("norm_mean", config.mean);
  keys.read("norm_std", config.std);
  const auto usual = [](double value) { return std::abs(value) >= 1e-6 && std::abs(value) <= 1e6; };
  if (!std::ranges::all_of(config.std, usual))
    throw keys.wrong("norm_std", "numbers of 1e-6 to 1e6", *keys.find("norm_std"));
  if (std::ranges::any_of(config.mean, [](double value) { return std::abs(value) > 1e6; }))
    throw keys.wrong("norm_mean", "numbers up to 1e6", *keys.find("norm_mean"));
  bool slices = true;
  keys.read("slice_mode", slices);
  if (!slices) throw keys.wrong("slice_mode", "true (pictures are resized to whole patches)", Json(false));
  return config;
}

Json slice_image_config_json(const SliceImageConfig& config) {
  return {{"image_processor_type", "MiniCPMVImageProcessor"},
          {"max_slice_nums", config.max_slices},
          {"norm_mean", config.mean},
          {"norm_std", config.std},
          {"patch_size", config.patch},
          {"scale_resolution", config.resolution},
          {"slice_mode", true}};
}

std::optional<TileGrid> slice_grid(PictureSize picture, const SliceImageConfig& config) {
  const auto width = static_cast<double>(picture.width), height = static_cast<double>(picture.height);
  const double slices = std::ceil(width * height / area_of_slice(config));
  const auto wanted = static_cast<int64_t>(std::min(slices, static_cast<double>(config.max_slices)));
  if (wanted <= 1) return std::nullopt;
  TileGrid best;
  double nearest = std::numeric_limits<double>::infinity();
  for (int64_t count = wanted - 1; count <= wanted + 1; ++count) {
    if (count == 1 || count > config.max_slices) continue;
    for (int64_t columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) continue;
      const TileGrid grid{columns, count / columns};
      const double apart = std::abs(std::log(width / height) -
                                    std::log(static_cast<double>(grid.columns) / static_cast<double>(grid.rows)));
      if (apart >= nearest) continue;
      nearest = apart;
      best = grid;
    }
  }
  return best;
}

PictureSize whole_size(PictureSize picture, const SliceImageConfig& config) {
  return best_size(static_cast<double>(picture.width), static_cast<double>(picture.height),
                   !slice_grid(picture, config), config);
}

PictureSize part_size(PictureSize picture, const TileGrid& grid, const SliceImageConfig& config) {
  const auto part = [](int64_t length, int64_t count) {
    return static_cast<double>(fitted(static_cast<double>(length), count) / count);
  };
  return best_size(part(picture.width, grid.columns), part(picture.height, grid.rows), /*grows=*/true, config);
}

std::vector<MediaBlock> slice_pixels(const Image& image, const SliceImageConfig& config, const std::string& where) {
  const PictureSize picture{image.width, image.height};
  const auto resized = [&](PictureSize size) {
    return resize(image, size.width, size.height, Resample::kBicubic, ImageBackend::kPillow);
  };
  const Levels levels = levels_of(config);
  const auto grid = slice_grid(picture, config);
  const PictureSize whole = whole_size(picture, config);
  check_size(whole, 1, config.patch, where);
  std::vector<MediaBlock> slices{block_of(resized(whole), {}, whole, config.patch, levels)};
  if (!grid) return slices;
  const PictureSize part = part_size(picture, *grid, config);
  check_size(part, static_cast<double>(grid->columns * grid->rows), config.patch, where);
  const Image large = resized({part.width * grid->columns, part.height * grid->rows});
  for (int64_t i = 0; i < grid->columns * grid->rows; ++i) {
    const PictureSize origin{i % grid->columns * part.width, i / grid->columns * part.height};
    slices.push_back(block_of(large, origin, part, config.patch, levels));
    slices.back().columns = grid->columns;
  }
  return slices;
}

}  // namespace lockstep
