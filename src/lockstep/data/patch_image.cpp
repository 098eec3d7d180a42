#include "lockstep/data/patch_image.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 28;  // of a picture that is made: 3 GB as float32
constexpr int64_t kSteepest = 200;

void read_pixels(const ImageKeys& keys, PatchImageConfig& config) {
  const auto read = [&](const char* key, int64_t& value) {
    if (const Json* found = keys.find(key)) value = keys.pixels(key, *found, kMostPixels);
  };
  if (const Json* size = keys.find("size")) {
    const auto part = [&](const char* name, int64_t& value) {
      if (size->contains(name)) value = keys.pixels("size", size->at(name), kMostPixels);
    };
    if (!size->is_object()) throw keys.wrong("size", "{\"shortest_edge\": pixels, \"longest_edge\": pixels}", *size);
    part("shortest_edge", config.min_pixels);
    part("longest_edge", config.max_pixels);
    const bool says_least = size->contains("shortest_edge") || keys.find("min_pixels") != nullptr;
    const bool says_most = size->contains("longest_edge") || keys.find("max_pixels") != nullptr;
    if (!says_least || !says_most) {
      throw keys.wrong("size", "{\"shortest_edge\": pixels, \"longest_edge\": pixels}", *size);
    }
  }
  read("min_pixels", config.min_pixels);
  read("max_pixels", config.max_pixels);
}

/// Where values of a patch come from: frames of one size, already resized.
struct Cut {
  const PatchImageConfig& config;
  int64_t width, blocks_high, blocks_wide;
  std::array<std::array<float, 256>, 3> tables;

  /// One patch, [channels, temporal_patch, patch, patch].
  float* patch(const std::vector<const Image*>& group, int64_t top, int64_t left, float* to) const {
    for (size_t c = 0; c < 3; ++c) {
      for (const Image* frame : group) {
        for (int64_t y = top; y < top + config.patch; ++y) {
          const uint8_t* from = &frame->pixels[static_cast<size_t>((y * width + left) * 3)] + c;
          for (int64_t x = 0; x < config.patch; ++x) *to++ = tables[c][from[3 * x]];
        }
      }
    }
    return to;
  }

  /// All patches of a group of frames, block by block.
  float* group(const std::vector<const Image*>& frames, float* to) const {
    const int64_t merge = config.merge, block = config.patch * merge;
    for (int64_t b = 0; b < blocks_high * blocks_wide; ++b) {
      for (int64_t inner = 0; inner < merge * merge; ++inner) {
        const int64_t top = b / blocks_wide * block + inner / merge * config.patch;
        const int64_t left = b % blocks_wide * block + inner % merge * config.patch;
        to = patch(frames, top, left, to);
      }
    }
    return to;
  }
};

std::vector<Image> resized(const std::vector<Image>& frames, const PatchImageConfig& config, const std::string& where) {
  std::vector<Image> out;
  for (size_t i = 0; i < frames.size(); ++i) {
    if (frames[i].width != frames[0].width || frames[i].height != frames[0].height) {
      throw data_error(fmt::format("{}: expected frames of one size, {}x{}, found {}x{} in frame {}", where,
                                   frames[0].width, frames[0].height, frames[i].width, frames[i].height, i));
    }
    out.push_back(patch_resized(frames[i], config, where));
  }
  return out;
}

}  // namespace

PatchImageConfig read_patch_image_config(const Json& json, const std::string& where, const PatchImageConfig& usual) {
  const ImageKeys keys(json, where);
  PatchImageConfig config = usual;
  config.read_scale(keys);
  keys.read("do_resize", config.do_resize);
  const auto edge = [&](const char* key, int64_t& value) {
    if (const Json* found = keys.find(key)) value = keys.pixels(key, *found, 1024);
  };
  edge("patch_size", config.patch);
  edge("temporal_patch_size", config.temporal_patch);
  edge("merge_size", config.merge);
  keys.read("resample", config.resample);
  read_pixels(keys, config);
  if (config.min_pixels > config.max_pixels) {
    throw checkpoint_error(fmt::format("{}: min_pixels: expected at most max_pixels {}, found {}", where,
                                       config.max_pixels, config.min_pixels));
  }
  return config;
}

Json patch_image_config_json(const PatchImageConfig& config) {
  Json json = {{"min_pixels", config.min_pixels}, {"max_pixels", config.max_pixels},
               {"patch_size", config.patch},      {"temporal_patch_size", config.temporal_patch},
               {"merge_size", config.merge},      {"image_mean", config.mean},
               {"image_std", config.std},         {"image_processor_type", "Qwen2VLImageProcessor"}};
  if (config.backend == ImageBackend::kPillow) json["use_fast"] = false;
  return json;
}

PictureSize patch_size_of(PictureSize given, const PatchImageConfig& config, const std::string& where) {
  const auto width = static_cast<double>(given.width), height = static_cast<double>(given.height);
  if (std::max(given.width, given.height) > kSteepest * std::min(given.width, given.height)) {
    throw data_error(fmt::format("{}: expected a picture at most {} times as long as wide, found {}x{}", where,
                                 kSteepest, given.width, given.height));
  }
  const int64_t block = config.patch * config.merge;
  const auto edge = static_cast<double>(block);
  const auto nearest = [&](double x) {
    return static_cast<int64_t>(std::nearbyint(x / edge)) * block;
  };  // halves to even
  PictureSize size{nearest(width), nearest(height)};
  if (size.width * size.height > config.max_pixels) {
    const double shrink = std::sqrt(height * width / static_cast<double>(config.max_pixels));
    const auto below = [&](double x) {
      return std::max(block, static_cast<int64_t>(std::floor(x / shrink / edge)) * block);
    };
    size = {below(width), below(height)};
  } else if (size.width * size.height < config.min_pixels) {
    const double grow = std::sqrt(static_cast<double>(config.min_pixels) / (height * width));
    const auto above = [&](double x) { return static_cast<int64_t>(std::ceil(x * grow / edge)) * block; };
    size = {above(width), above(height)};
  }
  return size;
}

Image patch_resized(const Image& frame, const PatchImageConfig& config, const std::string& where) {
  const PictureSize given{frame.width, frame.height};
  const PictureSize size = config.do_resize ? patch_size_of(given, config, where) : given;
  const int64_t block = config.patch * config.merge;
  if (size.width % block != 0 || size.height % block != 0) {
    throw data_error(fmt::format("{}: expected edges that are multiples of {} (do_resize is off), found {}x{}", where,
                                 block, size.width, size.height));
  }
  return resize(frame, size.width, size.height, config.resample, config.backend);
}

MediaBlock patch_pixels(const std::vector<Image>& frames, const PatchImageConfig& config, const std::string& where) {
  if (frames.empty()) throw data_error(fmt::format("{}: expected a video of at least one frame, found none", where));
  const std::vector<Image> ready = resized(frames, config, where);
  const int64_t width = ready[0].width, height = ready[0].height, block = config.patch * config.merge;
  const auto count = static_cast<int64_t>(ready.size());
  const int64_t groups = (count + config.temporal_patch - 1) / config.temporal_patch;
  const Cut cut{config, width, height / block, width / block, config.tables()};
  MediaBlock out;
  out.shape = {groups * (height / config.patch) * (width / config.patch),
               3 * config.temporal_patch * config.patch * config.patch};
  out.values.resize(static_cast<size_t>(out.shape[0] * out.shape[1]));
  out.facts["grid_thw"] = {groups, height / config.patch, width / config.patch};
  float* to = out.values.data();
  for (int64_t g = 0; g < groups; ++g) {
    std::vector<const Image*> group;
    for (int64_t t = 0; t < config.temporal_patch; ++t) {
      group.push_back(&ready[static_cast<size_t>(std::min(count - 1, g * config.temporal_patch + t))]);
    }
    to = cut.group(group, to);
  }
  return out;
}

}  // namespace lockstep
