// Grounding of one row: what its texts name, and the boxes around it. ms-swift's "objects".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/base/json.h"

namespace lockstep {

inline constexpr const char* kBoxMark = "<bbox>";
inline constexpr const char* kRefMark = "<ref-object>";

struct RowObjects {
  std::vector<std::string> refs;           // one for each <ref-object>, in order
  std::vector<std::vector<double>> boxes;  // one for each <bbox>: {x1, y1, x2, y2}, or {x, y} of a point
  std::vector<size_t> images;              // by box: the picture that it lies in
  bool of_one = false;                     // boxes are parts of the picture's edges, 0 to 1; else its pixels

  bool empty() const { return refs.empty() && boxes.empty(); }
};

/// {"ref": [...], "bbox": [...], "bbox_type": "real" | "norm1", "image_id": [...]}. Corners are put in order. Throws
/// UserError(kData) naming row, field, expected and found.
RowObjects read_objects(const Json& value, const std::string& where);

}  // namespace lockstep
