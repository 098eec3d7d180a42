#include "lockstep/data/image_keys.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/text_format.h"

namespace lockstep {

ImageKeys::ImageKeys(const Json& json, const std::string& where) : json_(json), where_(where) {
  if (!json.is_object()) throw checkpoint_error(fmt::format("{}: expected a JSON object", where));
}

const Json* ImageKeys::find(const char* key) const {
  const auto it = json_.find(key);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

UserError ImageKeys::wrong(const char* key, const char* expected, const Json& found) const {
  return checkpoint_error(fmt::format("{}: {}: expected {}, found {}", where_, key, expected,
                                      cut_text(found.dump(-1, ' ', false, Json::error_handler_t::replace))));
}

void ImageKeys::read(const char* key, bool& value) const {
  const Json* found = find(key);
  // A step that is null is left out, as by transformers; of what is no step null says nothing.
  if (found == nullptr && json_.contains(key) && std::string_view(key).starts_with("do_")) value = false;
  if (found == nullptr) return;
  if (!found->is_boolean()) throw wrong(key, "true or false", *found);
  value = found->get<bool>();
}

void ImageKeys::read(const char* key, double& value) const {
  const Json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_number()) throw wrong(key, "a number", *found);
  value = found->get<double>();
}

void ImageKeys::read(const char* key, std::array<double, 3>& value) const {
  const Json* found = find(key);
  if (found == nullptr) return;
  const bool three = found->is_array() && found->size() == 3 &&
                     std::all_of(found->begin(), found->end(), [](const Json& v) { return v.is_number(); });
  if (!three) throw wrong(key, "a list of three numbers", *found);
  for (size_t i = 0; i < 3; ++i) value[i] = (*found)[i].get<double>();
}

int64_t ImageKeys::pixels(const char* key, const Json& found, int64_t most) const {
  if (!found.is_number_integer() || found.get<int64_t>() < 1 || found.get<int64_t>() > most) {
    throw wrong(key, fmt::format("a size in pixels, 1 to {}", most).c_str(), found);
  }
  return found.get<int64_t>();
}

void ImageKeys::read(const char* key, Resample& value) const {
  const Json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_number_integer() || found->get<int64_t>() < 0 || found->get<int64_t>() > 5) {
    throw wrong(key, "a filter of Pillow, 0 to 5", *found);
  }
  value = static_cast<Resample>(found->get<int>());
}

void ImageKeys::read(ImageBackend& value) const {
  if (const Json* type = find("image_processor_type"); type != nullptr && type->is_string()) {
    if (type->get_ref<const std::string&>().ends_with("Pil")) value = ImageBackend::kPillow;
  }
  bool fast = value == ImageBackend::kTorchvision;
  read("use_fast", fast);
  value = fast ? ImageBackend::kTorchvision : ImageBackend::kPillow;
}

void PixelScale::read_scale(const ImageKeys& keys) {
  keys.read(backend);
  keys.read("do_rescale", do_rescale);
  keys.read("rescale_factor", rescale_factor);
  keys.read("do_normalize", do_normalize);
  keys.read("image_mean", mean);
  keys.read("image_std", std);
  // What leaves this range is infinite in float32, or so small that every picture is the same.
  const auto usual = [](double value) { return std::abs(value) >= 1e-6 && std::abs(value) <= 1e6; };
  if (!std::ranges::all_of(std, usual))
    throw keys.wrong("image_std", "numbers of 1e-6 to 1e6", *keys.find("image_std"));
  if (std::ranges::any_of(mean, [](double value) { return std::abs(value) > 1e6; }))
    throw keys.wrong("image_mean", "numbers up to 1e6", *keys.find("image_mean"));
  if (do_rescale && !usual(rescale_factor))
    throw keys.wrong("rescale_factor", "a number of 1e-6 to 1e6", *keys.find("rescale_factor"));
}

std::array<std::array<float, 256>, 3> PixelScale::tables() const {
  // Source: transformers 5.23 image_processing_backends.py: rescale_and_normalize, _fuse_mean_std_and_rescale_factor.
  const bool torch = backend == ImageBackend::kTorchvision, fused = torch && do_rescale && do_normalize;
  const float levels = fused ? static_cast<float>(1.0 / rescale_factor) : 1.0F;
  std::array<std::array<float, 256>, 3> tables{};
  for (size_t c = 0; c < tables.size(); ++c) {
    const float middle = static_cast<float>(mean[c]) * levels, deviation = static_cast<float>(std[c]) * levels;
    for (size_t v = 0; v < tables[c].size(); ++v) {
      float& value = tables[c][v];
      value = static_cast<float>(v);
      if (do_rescale && !fused) {
        value = torch ? value * static_cast<float>(rescale_factor)
                      : static_cast<float>(static_cast<double>(v) * rescale_factor);
      }
      if (do_normalize) value = (value - middle) / deviation;
    }
  }
  return tables;
}

}  // namespace lockstep
