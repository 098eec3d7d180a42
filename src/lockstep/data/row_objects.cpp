#include "lockstep/data/row_objects.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/data/row_media.h"  // field_error

namespace lockstep {
namespace {

constexpr double kMostPixels = 1e6;  // of an edge: above every picture that is read

/// {x1, y1, x2, y2} with the lesser corner first, or {x, y}.
std::vector<double> read_box(const Json& value, const std::string& where, const std::string& field) {
  const bool pairs = value.is_array() && (value.size() == 2 || value.size() == 4);
  if (!pairs) throw field_error(where, field, "[x1, y1, x2, y2], or [x, y] of a point", value);
  std::vector<double> box;
  for (const auto& number : value) {
    const bool fits = number.is_number() && std::abs(number.get<double>()) <= kMostPixels;
    if (!fits) throw field_error(where, field, fmt::format("numbers up to {:.0f}", kMostPixels), value);
    box.push_back(number.get<double>());
  }
  for (size_t i = 0; box.size() == 4 && i < 2; ++i) {
    if (box[i] > box[i + 2]) std::swap(box[i], box[i + 2]);
  }
  return box;
}

const Json* list_of(const Json& objects, const char* key, const std::string& where) {
  const auto it = objects.find(key);
  if (it == objects.end() || it->is_null()) return nullptr;
  if (!it->is_array()) throw field_error(where, fmt::format("objects.{}", key), "a list", *it);
  return &*it;
}

}  // namespace

RowObjects read_objects(const Json& value, const std::string& where) {
  RowObjects objects;
  if (!value.is_object()) throw field_error(where, "objects", "an object with ref and bbox", value);
  for (const auto& [key, found] : value.items()) {
    // Sizes of pictures are measured, whatever a row says of them.
    const bool known =
        key == "ref" || key == "bbox" || key == "bbox_type" || key == "image_id" || key == "width" || key == "height";
    if (!known) throw field_error(where, "objects." + key, "ref, bbox, bbox_type or image_id", found);
  }
  if (const Json* refs = list_of(value, "ref", where)) {
    for (size_t i = 0; i < refs->size(); ++i) {
      if (!(*refs)[i].is_string()) throw field_error(where, fmt::format("objects.ref[{}]", i), "text", (*refs)[i]);
      objects.refs.push_back((*refs)[i].get<std::string>());
    }
  }
  if (const Json* boxes = list_of(value, "bbox", where)) {
    for (size_t i = 0; i < boxes->size(); ++i)
      objects.boxes.push_back(read_box((*boxes)[i], where, fmt::format("objects.bbox[{}]", i)));
  }
  objects.images.resize(objects.boxes.size());
  if (const Json* images = list_of(value, "image_id", where)) {
    if (images->size() > objects.boxes.size())
      throw field_error(where, "objects.image_id", fmt::format("one a box, {} at most", objects.boxes.size()), *images);
    for (size_t i = 0; i < images->size(); ++i) {
      const Json& id = (*images)[i];
      if (!id.is_number_integer() || id.get<int64_t>() < 0)
        throw field_error(where, fmt::format("objects.image_id[{}]", i), "the number of a picture, from 0", id);
      objects.images[i] = static_cast<size_t>(id.get<int64_t>());
    }
  }
  if (const auto type = value.find("bbox_type"); type != value.end() && !type->is_null()) {
    if (*type != "real" && *type != "norm1") throw field_error(where, "objects.bbox_type", "real or norm1", *type);
    objects.of_one = *type == "norm1";
  }
  return objects;
}

}  // namespace lockstep
