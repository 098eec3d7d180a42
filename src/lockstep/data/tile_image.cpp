#include "lockstep/data/tile_image.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Grids of `least` to `most` tiles, the smaller first, of one area by their columns.
std::vector<TileGrid> grids_of(int64_t least, int64_t most) {
  std::vector<TileGrid> grids;
  for (int64_t columns = 1; columns <= most; ++columns) {
    for (int64_t rows = 1; rows * columns <= most; ++rows) {
      if (rows * columns >= least) grids.push_back({columns, rows});
    }
  }
  std::stable_sort(grids.begin(), grids.end(),
                   [](const TileGrid& a, const TileGrid& b) { return a.columns * a.rows < b.columns * b.rows; });
  return grids;
}

/// Part of a picture as float32 [3, height, width].
void put_tile(const Image& image, int64_t left, int64_t top, const TileImageConfig& config,
              const std::array<std::array<float, 256>, 3>& tables, std::vector<float>& out) {
  for (size_t c = 0; c < 3; ++c) {
    for (int64_t y = top; y < top + config.height; ++y) {
      const uint8_t* row = &image.pixels[static_cast<size_t>((y * image.width + left) * 3)];
      for (int64_t x = 0; x < config.width; ++x) out.push_back(tables[c][row[x * 3 + static_cast<int64_t>(c)]]);
    }
  }
}

MediaBlock block_of(int64_t tiles, const TileImageConfig& config) {
  MediaBlock block{.shape = {tiles, 3, config.height, config.width}};
  block.values.reserve(static_cast<size_t>(tiles * 3 * config.height * config.width));
  return block;
}

}  // namespace

TileImageConfig read_tile_image_config(const Json& json, const std::string& where) {
  const ImageKeys keys(json, where);
  TileImageConfig config;
  config.read_scale(keys);
  keys.read("resample", config.resample);
  if (const Json* size = keys.find("size")) {
    if (size->is_number()) {
      config.width = config.height = keys.pixels("size", *size);
    } else if (size->is_object() && size->contains("height") && size->contains("width")) {
      config.height = keys.pixels("size", size->at("height"));
      config.width = keys.pixels("size", size->at("width"));
    } else {
      throw keys.wrong("size", "a number or {\"height\": n, \"width\": n}", *size);
    }
  }
  if (const Json* least = keys.find("min_patches")) config.min_tiles = keys.pixels("min_patches", *least, kMostTiles);
  if (const Json* most = keys.find("max_patches")) config.max_tiles = keys.pixels("max_patches", *most, kMostTiles);
  if (config.min_tiles > config.max_tiles) {
    throw keys.wrong("min_patches", "at most max_patches", Json(config.min_tiles));
  }
  return config;
}

Json tile_image_config_json(const TileImageConfig& config) {
  return {{"crop_to_patches", config.tiles},
          {"do_convert_rgb", true},
          {"do_normalize", config.do_normalize},
          {"do_rescale", config.do_rescale},
          {"do_resize", true},
          {"image_mean", config.mean},
          {"image_std", config.std},
          {"max_patches", config.max_tiles},
          {"min_patches", config.min_tiles},
          {"resample", static_cast<int>(config.resample)},
          {"rescale_factor", config.rescale_factor},
          {"size", {{"height", config.height}, {"width", config.width}}}};
}

TileGrid tile_grid(int64_t width, int64_t height, const TileImageConfig& config) {
  if (!config.tiles) return {};
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  const auto area = static_cast<double>(width) * static_cast<double>(height);
  double nearest = std::numeric_limits<double>::infinity();
  TileGrid best;
  for (const TileGrid& grid : grids_of(config.min_tiles, config.max_tiles)) {
    const double apart = std::abs(aspect - static_cast<double>(grid.columns) / static_cast<double>(grid.rows));
    const auto covered = static_cast<double>(config.height * config.width * grid.columns * grid.rows);
    if (apart > nearest || (apart == nearest && area <= 0.5 * covered)) continue;
    nearest = apart;
    best = grid;
  }
  return best;
}

MediaBlock tile_pixels(const Image& image, const TileImageConfig& config, const std::string& where) {
  const TileGrid grid = tile_grid(image.width, image.height, config);
  const int64_t count = grid.columns * grid.rows;
  if (config.width * config.height > kMaxImagePixels / (count + 1)) {
    throw data_error(fmt::format("{}: expected tiles of at most {} pixels in all, found {} of {}x{}", where,
                                 kMaxImagePixels, count, config.width, config.height),
                     "a smaller MAX_NUM makes fewer tiles");
  }
  const bool whole_too = config.thumbnail && count > 1;
  const auto tables = config.tables();
  MediaBlock block = block_of(count + (whole_too ? 1 : 0), config);
  const Image large =
      resize(image, config.width * grid.columns, config.height * grid.rows, config.resample, config.backend);
  for (int64_t i = 0; i < count; ++i) {
    put_tile(large, i % grid.columns * config.width, i / grid.columns * config.height, config, tables, block.values);
  }
  if (whole_too) {
    const Image small = resize(image, config.width, config.height, config.resample, config.backend);
    put_tile(small, 0, 0, config, tables, block.values);
  }
  return block;
}

}  // namespace lockstep
