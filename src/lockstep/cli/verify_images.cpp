#include <algorithm>
#include <cmath>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/verify_parts.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/data/image.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// Largest and mean difference of levels.
constexpr Tolerance kSameDecoder{.max = 2}, kLossless{.max = 0}, kOtherResizer{.max = 1, .mean = 0.02};

Tensor decoded(const Image& image) {
  const Tensor out = empty({image.height, image.width, 3}, Dtype::kU8);
  std::copy(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t*>(out.data_ptr()));
  return out;
}

/// Normalised values [3,H,W] -> the levels [1,3,H,W] that they stand for.
Tensor levels(const PixelBlock& block, const ClipImageConfig& config) {
  const int64_t plane = block.shape[1] * block.shape[2];
  const Tensor out = empty({1, 3, block.shape[1], block.shape[2]}, Dtype::kU8);
  auto* to = static_cast<uint8_t*>(out.data_ptr());
  for (int64_t i = 0; i < 3 * plane; ++i) {
    const auto channel = static_cast<size_t>(i / plane);
    const double value =
        (block.values[static_cast<size_t>(i)] * config.std.at(channel) + config.mean.at(channel)) * 255;
    to[i] = static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L));
  }
  return out;
}

void verify_image(const std::string& name, const std::string& kind, const Tensor& expected, const Image& image,
                  const ClipImageConfig& config, VerifyReport& report) {
  if (kind == "decoded") {
    report.compare(name, kind, expected, decoded(image), name.ends_with(".jpg") ? kSameDecoder : kLossless);
  } else if (kind == "llava/pil" || kind == "llava/torchvision") {
    const Tolerance tolerance = kind == "llava/pil" && !name.ends_with(".jpg") ? kLossless : kOtherResizer;
    report.compare(name, kind, expected, levels(clip_pixels(image, config), config), tolerance);
  } else if (kind == "llava/pixel_values") {
    const PixelBlock block = clip_pixels(image, config);
    const Tensor found = from_values(std::span<const float>(block.values), {1, 3, block.shape[1], block.shape[2]});
    report.compare(name, kind, expected, found,
                   pixel_tolerance(*std::min_element(config.std.begin(), config.std.end())));
  } else {
    report.not_built(name, kind, "a processor of another family");
  }
}

}  // namespace

void verify_images(const fs::path& folder, VerifyReport& report) {
  const Weights stored = Weights::open(folder / "reference.safetensors");
  const Json meta = read_json(folder / "reference.json");
  ClipImageConfig config;
  config.shortest_edge = config.crop_width = config.crop_height = meta.at("settings").at("llava_size").get<int64_t>();
  std::vector<std::string> names;
  for (const auto& spec : stored.specs()) names.push_back(spec.name);
  std::sort(names.begin(), names.end());
  std::string file;
  Image image;
  for (const auto& name : names) {
    const size_t slash = name.find('/');
    if (name.substr(0, slash) != file) {
      file = name.substr(0, slash);
      image = load_image((folder / "images" / file).string(), file);
    }
    verify_image(file, name.substr(slash + 1), stored.read(name), image, config, report);
  }
  if (meta.contains("geometry")) {
    report.not_built("geometry", fmt::format("{} sizes", meta["geometry"].size()), "tilings of other families");
  }
}

}  // namespace lockstep
