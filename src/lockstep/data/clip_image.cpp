#include "lockstep/data/clip_image.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep {

namespace {

/// Reads keys of one object; a key that is absent or null leaves the default.
class KeyReader {
 public:
  KeyReader(const Json& json, const std::string& where) : json_(json), where_(where) {}

  const Json* find(const char* key) const {
    const auto it = json_.find(key);
    return it == json_.end() || it->is_null() ? nullptr : &*it;
  }
  UserError wrong(const char* key, const char* expected, const Json& found) const {
    return checkpoint_error(fmt::format("{}: {}: expected {}, found {}", where_, key, expected, found.dump()));
  }
  void read(const char* key, bool& value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    if (!found->is_boolean()) throw wrong(key, "true or false", *found);
    value = found->get<bool>();
  }
  void read(const char* key, std::array<double, 3>& value) const {
    const Json* found = find(key);
    if (found == nullptr) return;
    const bool three = found->is_array() && found->size() == 3 &&
                       std::all_of(found->begin(), found->end(), [](const Json& v) { return v.is_number(); });
    if (!three) throw wrong(key, "a list of three numbers", *found);
    for (size_t i = 0; i < 3; ++i) value[i] = (*found)[i].get<double>();
  }
  /// A whole number from 1 to 65536; `found` may stand inside the value of `key`.
  int64_t edge(const char* key, const Json& found) const {
    if (!found.is_number_integer() || found.get<int64_t>() < 1 || found.get<int64_t>() > 65536) {
      throw wrong(key, "a size in pixels, 1 to 65536", found);
    }
    return found.get<int64_t>();
  }

 private:
  const Json& json_;
  const std::string& where_;
};

void read_size(const KeyReader& keys, ClipImageConfig& config) {
  const Json* size = keys.find("size");
  if (size == nullptr) return;
  if (size->is_number()) {
    config.shortest_edge = keys.edge("size", *size);
  } else if (size->is_object() && size->contains("height") && size->contains("width")) {
    config.shortest_edge = 0;
    config.height = keys.edge("size", size->at("height"));
    config.width = keys.edge("size", size->at("width"));
  } else if (size->is_object() && size->contains("shortest_edge") && !size->contains("longest_edge")) {
    config.shortest_edge = keys.edge("size", size->at("shortest_edge"));
  } else {
    throw keys.wrong("size", "a number, {\"shortest_edge\": n} or {\"height\": n, \"width\": n}", *size);
  }
}

void read_crop_size(const KeyReader& keys, ClipImageConfig& config) {
  const Json* size = keys.find("crop_size");
  if (size == nullptr) return;
  if (size->is_number()) {
    config.crop_width = config.crop_height = keys.edge("crop_size", *size);
  } else if (size->is_object() && size->contains("height") && size->contains("width")) {
    config.crop_height = keys.edge("crop_size", size->at("height"));
    config.crop_width = keys.edge("crop_size", size->at("width"));
  } else {
    throw keys.wrong("crop_size", "a number or {\"height\": n, \"width\": n}", *size);
  }
}

/// A square with the picture in its middle. Source: LlavaImageProcessorPil.pad_to_square; the colour is cut, not
/// rounded.
Image pad_to_square(const Image& image, const std::array<double, 3>& mean) {
  if (image.width == image.height) return image;
  const int64_t edge = std::max(image.width, image.height);
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

Image resize_for(const Image& image, const ClipImageConfig& config) {
  if (config.shortest_edge == 0) return resize(image, config.width, config.height, config.resample);
  const int64_t edge = config.shortest_edge;
  const bool upright = image.width <= image.height;
  const int64_t shorter = upright ? image.width : image.height, longer = upright ? image.height : image.width;
  const auto long_edge = static_cast<int64_t>(static_cast<double>(edge * longer) / static_cast<double>(shorter));
  return resize(image, upright ? edge : long_edge, upright ? long_edge : edge, config.resample);
}

}  // namespace

ClipImageConfig read_clip_image_config(const Json& json, const std::string& where) {
  if (!json.is_object()) throw checkpoint_error(fmt::format("{}: expected a JSON object", where));
  const KeyReader keys(json, where);
  ClipImageConfig config;
  keys.read("do_resize", config.do_resize);
  keys.read("do_center_crop", config.do_center_crop);
  keys.read("do_rescale", config.do_rescale);
  keys.read("do_normalize", config.do_normalize);
  keys.read("do_pad", config.do_pad);
  keys.read("image_mean", config.mean);
  keys.read("image_std", config.std);
  if (std::any_of(config.std.begin(), config.std.end(), [](double s) { return s == 0.0; })) {
    throw keys.wrong("image_std", "numbers other than 0", *keys.find("image_std"));
  }
  if (const Json* aspect = keys.find("image_aspect_ratio")) {
    if (*aspect != "pad" && *aspect != "square")
      throw keys.wrong("image_aspect_ratio", "\"pad\" or \"square\"", *aspect);
    config.do_pad = *aspect == "pad";
  }
  if (const Json* factor = keys.find("rescale_factor")) {
    if (!factor->is_number()) throw keys.wrong("rescale_factor", "a number", *factor);
    config.rescale_factor = factor->get<double>();
  }
  if (const Json* filter = keys.find("resample")) {
    if (!filter->is_number_integer() || filter->get<int64_t>() < 0 || filter->get<int64_t>() > 5) {
      throw keys.wrong("resample", "a filter of Pillow, 0 to 5", *filter);
    }
    config.resample = static_cast<Resample>(filter->get<int>());
  }
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
  json["resample"] = static_cast<int>(config.resample);
  json["rescale_factor"] = config.rescale_factor;
  if (config.shortest_edge != 0) {
    json["size"] = {{"shortest_edge", config.shortest_edge}};
  } else {
    json["size"] = {{"height", config.height}, {"width", config.width}};
  }
  return json;
}

PixelBlock clip_pixels(const Image& image, const ClipImageConfig& config) {
  Image prepared = config.do_pad ? pad_to_square(image, config.mean) : image;
  if (config.do_resize) prepared = resize_for(prepared, config);
  if (config.do_center_crop) prepared = center_crop(prepared, config.crop_width, config.crop_height);

  const auto num_pixels = static_cast<size_t>(prepared.width * prepared.height);
  PixelBlock out{.shape = {3, prepared.height, prepared.width}, .values = std::vector<float>(num_pixels * 3)};
  for (size_t c = 0; c < 3; ++c) {
    // One of 256 values each: the arithmetic (scaled in double, the rest in float, as NumPy does it) is done once for
    // all.
    std::array<float, 256> table{};
    for (size_t v = 0; v < table.size(); ++v) {
      const auto value = static_cast<double>(v);
      table[v] = static_cast<float>(config.do_rescale ? value * config.rescale_factor : value);
      if (config.do_normalize)
        table[v] = (table[v] - static_cast<float>(config.mean[c])) / static_cast<float>(config.std[c]);
    }
    float* to = out.values.data() + c * num_pixels;
    for (size_t i = 0; i < num_pixels; ++i) to[i] = table[prepared.pixels[i * 3 + c]];
  }
  return out;
}

}  // namespace lockstep
