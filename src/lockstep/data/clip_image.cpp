#include "lockstep/data/clip_image.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/image_codecs.h"

namespace lockstep {

namespace {

void read_size(const ImageKeys& keys, ClipImageConfig& config) {
  const Json* size = keys.find("size");
  if (size == nullptr) return;
  if (size->is_number()) {
    config.shortest_edge = keys.pixels("size", *size);
  } else if (size->is_object() && size->contains("height") && size->contains("width")) {
    config.shortest_edge = 0;
    config.height = keys.pixels("size", size->at("height"));
    config.width = keys.pixels("size", size->at("width"));
  } else if (size->is_object() && size->contains("shortest_edge") && !size->contains("longest_edge")) {
    config.shortest_edge = keys.pixels("size", size->at("shortest_edge"));
  } else {
    throw keys.wrong("size", "a number, {\"shortest_edge\": n} or {\"height\": n, \"width\": n}", *size);
  }
}

void read_crop_size(const ImageKeys& keys, ClipImageConfig& config) {
  const Json* size = keys.find("crop_size");
  if (size == nullptr) return;
  if (size->is_number()) {
    config.crop_width = config.crop_height = keys.pixels("crop_size", *size);
  } else if (size->is_object() && size->contains("height") && size->contains("width")) {
    config.crop_height = keys.pixels("crop_size", size->at("height"));
    config.crop_width = keys.pixels("crop_size", size->at("width"));
  } else {
    throw keys.wrong("crop_size", "a number or {\"height\": n, \"width\": n}", *size);
  }
}

/// A long thin picture would become far larger than its file.
void check_prepared_size(int64_t width, int64_t height, const std::string& once, const Image& image,
                         const std::string& where) {
  if (width <= kMaxImagePixels / height) return;
  throw data_error(fmt::format("{}: expected a picture of at most {} pixels once {}, found {}x{}", where,
                               kMaxImagePixels, once, image.width, image.height),
                   "cut it into parts, or leave the row out: hardly anything of it would be seen");
}

/// A square with the picture in its middle. Source: LlavaImageProcessorPil.pad_to_square; the colour is cut, not
/// rounded.
Image pad_to_square(const Image& image, const std::array<double, 3>& mean, const std::string& where) {
  if (image.width == image.height) return image;
  const int64_t edge = std::max(image.width, image.height);
  check_prepared_size(edge, edge, "padded to a square", image, where);
  Image out{.width = edge, .height = edge, .pixels = std::vector<uint8_t>(static_cast<size_t>(edge * edge * 3))};
  std::array<uint8_t, 3> colour{};
  for (size_t c = 0; c < 3; ++c) colour[c] = static_cast<uint8_t>(std::clamp(mean[c] * 255, 0.0, 255.0));
  for (size_t i = 0; i < out.pixels.size(); ++i) out.pixels[i] = colour[i % 3];
  const int64_t left = (edge - image.width) / 2, top = (edge - image.height) / 2;
  for (int64_t y = 0; y < image.height; ++y) {
    std::copy_n(&image.pixels[static_cast<size_t>(y * image.width * 3)], image.width * 3,
                &out.pixels[static_cast<size_t>(((y + top) * edge + left) * 3)]);
  }
  return out;
}

Image resize_for(const Image& image, const ClipImageConfig& config, const std::string& where) {
  if (config.shortest_edge == 0) return resize(image, config.width, config.height, config.resample, config.backend);
  const int64_t edge = config.shortest_edge;
  const bool upright = image.width <= image.height;
  const int64_t shorter = upright ? image.width : image.height, longer = upright ? image.height : image.width;
  const auto long_edge = static_cast<int64_t>(static_cast<double>(edge * longer) / static_cast<double>(shorter));
  check_prepared_size(long_edge, edge, fmt::format("its shorter edge is {}", edge), image, where);
  return resize(image, upright ? edge : long_edge, upright ? long_edge : edge, config.resample, config.backend);
}

}  // namespace

ClipImageConfig read_clip_image_config(const Json& json, const std::string& where) {
  const ImageKeys keys(json, where);
  ClipImageConfig config;
  // A word of the original LLaVA alone, which prepares its images by Pillow.
  if (keys.find("image_aspect_ratio") != nullptr) config.backend = ImageBackend::kPillow;
  keys.read("do_resize", config.do_resize);
  keys.read("do_center_crop", config.do_center_crop);
  config.read_scale(keys);
  const Json* type = keys.find("image_processor_type");  // of which LLaVA's own alone pads
  const bool may_pad =
      type == nullptr || !type->is_string() || type->get_ref<const std::string&>().starts_with("Llava");
  if (may_pad) keys.read("do_pad", config.do_pad);
  if (const Json* aspect = keys.find("image_aspect_ratio")) {
    if (*aspect != "pad" && *aspect != "square")
      throw keys.wrong("image_aspect_ratio", "\"pad\" or \"square\"", *aspect);
    config.do_pad = *aspect == "pad";
  }
  keys.read("resample", config.resample);
  read_size(keys, config);
  read_crop_size(keys, config);
  return config;
}

Json clip_image_config_json(const ClipImageConfig& config) {
  Json json;
  json["crop_size"] = {{"height", config.crop_height}, {"width", config.crop_width}};
  json["do_center_crop"] = config.do_center_crop;
  json["do_convert_rgb"] = true;
  json["do_normalize"] = config.do_normalize;
  if (config.do_pad) json["do_pad"] = true;
  json["do_rescale"] = config.do_rescale;
  json["do_resize"] = config.do_resize;
  json["image_mean"] = config.mean;
  json["image_processor_type"] = config.do_pad ? "LlavaImageProcessor" : "CLIPImageProcessor";
  json["image_std"] = config.std;
  if (config.backend == ImageBackend::kPillow) json["use_fast"] = false;
  json["resample"] = static_cast<int>(config.resample);
  json["rescale_factor"] = config.rescale_factor;
  if (config.shortest_edge != 0) {
    json["size"] = {{"shortest_edge", config.shortest_edge}};
  } else {
    json["size"] = {{"height", config.height}, {"width", config.width}};
  }
  return json;
}

MediaBlock clip_pixels(const Image& image, const ClipImageConfig& config, const std::string& where) {
  Image prepared = config.do_pad ? pad_to_square(image, config.mean, where) : image;
  if (config.do_resize) prepared = resize_for(prepared, config, where);
  if (config.do_center_crop) prepared = center_crop(prepared, config.crop_width, config.crop_height, config.backend);

  const auto num_pixels = static_cast<size_t>(prepared.width * prepared.height);
  MediaBlock out{.shape = {1, 3, prepared.height, prepared.width}, .values = std::vector<float>(num_pixels * 3)};
  const auto tables = config.tables();
  for (size_t c = 0; c < 3; ++c) {
    float* to = out.values.data() + c * num_pixels;
    for (size_t i = 0; i < num_pixels; ++i) to[i] = tables[c][prepared.pixels[i * 3 + c]];
  }
  return out;
}

}  // namespace lockstep
