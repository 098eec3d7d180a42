#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/clip_image.h"
#include "lockstep/data/image.h"
#include "lockstep/data/patch_image.h"
#include "lockstep/tensor/make.h"
#include "lockstep/verify/parts.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

/// What one family's processor makes of an image.
struct Prepared {
  Tensor pixels;    // f32
  Tensor levels;    // u8, in the shape in which they are recorded
  Tensor grid_thw;  // i64, where there is one
  double std = 1;   // the smallest that was divided by
};
using Processors = std::map<std::string, std::function<Prepared(const Image& image, ImageBackend backend)>>;

Tensor decoded(const Image& image) {
  const Tensor out = empty({image.height, image.width, 3}, Dtype::kU8);
  std::copy(image.pixels.begin(), image.pixels.end(), static_cast<uint8_t*>(out.data_ptr()));
  return out;
}

/// Normalised values -> the levels that they stand for; `channels` is the dimension of three.
Tensor levels_of(const Tensor& values, int64_t channels, const PixelScale& scale) {
  Tensor out = values.clone();
  for (size_t c = 0; c < 3; ++c) {
    out.select(channels, static_cast<int64_t>(c)).mul_(scale.std.at(c)).add_(scale.mean.at(c));
  }
  return to_dtype(out.mul(255).round().clamp(0, 255), Dtype::kU8);
}

Tensor tensor_of(const MediaBlock& block) { return from_values(std::span<const float>(block.values), block.shape); }
double smallest(const PixelScale& scale) { return *std::min_element(scale.std.begin(), scale.std.end()); }

PatchImageConfig patch_config(const Json& settings) { return read_patch_image_config(settings, "settings"); }

/// A line for each kind of processor that is built.
Processors processors_of(const Json& settings) {
  Processors all;
  if (settings.contains("llava_size")) {
    ClipImageConfig config;
    config.shortest_edge = config.crop_width = config.crop_height = settings["llava_size"].get<int64_t>();
    all["llava"] = [config](const Image& image, ImageBackend backend) mutable {
      config.backend = backend;
      const Tensor pixels = tensor_of(clip_pixels(image, config, "image"));
      return Prepared{pixels, levels_of(pixels, 1, config), Tensor(), smallest(config)};
    };
  }
  if (settings.contains("qwen2_5_vl")) {
    PatchImageConfig config = patch_config(settings["qwen2_5_vl"]);
    all["qwen2_5_vl"] = [config](const Image& image, ImageBackend backend) mutable {
      config.backend = backend;
      const MediaBlock block = patch_pixels({image}, config, "image");
      const Tensor pixels = tensor_of(block);
      const Tensor patches = pixels.view({block.shape[0], 3, config.temporal_patch, config.patch, config.patch});
      const auto& grid = block.facts.at("grid_thw");
      return Prepared{pixels, levels_of(patches.select(2, 0), 1, config),
                      from_values(std::span<const int64_t>(grid), {1, 3}), smallest(config)};
    };
  }
  return all;
}

void verify_image(const std::string& file, const std::string& kind, const Tensor& expected, const Image& image,
                  const Processors& processors, VerifyReport& report) {
  constexpr double kLevel = 1.0 / 255;  // the deviation that makes the tolerance one of levels
  if (kind == "decoded") {
    report.compare(file, kind, expected, decoded(image), pixel_tolerance({file}, kLevel));
    return;
  }
  const std::string family = kind.substr(0, kind.find('/'));
  const auto processor = processors.find(family);
  if (processor == processors.end()) {
    report.not_built(file, kind, "a processor of another family");
    return;
  }
  const bool pillow = kind.find("/pil") != std::string::npos && !kind.ends_with("/pixel_values");
  const Prepared found = processor->second(image, pillow ? ImageBackend::kPillow : ImageBackend::kTorchvision);
  if (kind.ends_with("/grid_thw")) {
    report.compare(file, kind, expected, found.grid_thw, {.max = 0});
  } else if (kind.ends_with("/pixel_values")) {
    report.compare(file, kind, expected, found.pixels, pixel_tolerance({file}, found.std));
  } else {
    report.compare(file, kind, expected, found.levels, pixel_tolerance({file}, kLevel));
  }
}

/// Sizes that images of these sizes are brought to, at the settings of the released model.
void verify_geometry(const Json& rows, VerifyReport& report) {
  const PatchImageConfig config = patch_config({{"min_pixels", 3136}, {"max_pixels", 12845056}});
  int64_t wrong = 0, compared = 0;
  for (const auto& row : rows) {
    if (!row.contains("qwen2_5_vl_hw")) continue;
    const PictureSize size =
        patch_size_of({row.at("w").get<int64_t>(), row.at("h").get<int64_t>()}, config, "geometry");
    const auto expected = row["qwen2_5_vl_hw"].get<std::vector<int64_t>>();
    wrong += size == PictureSize{expected.at(1), expected.at(0)} ? 0 : 1;
    ++compared;
  }
  report.measured("geometry", "qwen2_5_vl sizes", static_cast<double>(wrong), 0, fmt::format("{} sizes", compared));
  report.not_built("geometry", fmt::format("{} sizes", rows.size()), "tilings of other families");
}

}  // namespace

void verify_images(const fs::path& folder, VerifyReport& report) {
  const Weights stored = Weights::open(folder / "reference.safetensors");
  const Json meta = read_json(folder / "reference.json");
  const Processors processors = processors_of(meta.at("settings"));
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
    verify_image(file, name.substr(slash + 1), stored.read(name), image, processors, report);
  }
  if (meta.contains("geometry")) verify_geometry(meta["geometry"], report);
}

}  // namespace lockstep
