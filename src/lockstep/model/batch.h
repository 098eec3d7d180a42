// Features of several samples -> the tensors that enter a model.
//
// Example:
//   Batch batch = collate(rows, {.pad_token = 0});
//   batch.flow["input_ids"];   // [B,T], right-padded for training
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/model/flow.h"

namespace lockstep {

struct CollateOptions {
  int32_t pad_token = 0;
  bool left_pad = false;  // generation: with "positions" and "mask"
};

/// flow is empty when there are no rows. `lengths` are tokens without padding.
///
/// Media of all rows stand behind one another in "pixel_values", what they give goes to "media_index"; each fact of the
/// media is a slot [media, n]. "positions" are there where rows have some ([axes,B,T]) or are left-padded.
struct Batch {
  Flow flow;
  std::vector<int64_t> lengths;
  std::vector<int64_t> next_positions;                    // of the first token behind each row
  int64_t rows = 0, input_tokens = 0, target_tokens = 0;  // targets: labels that count after the shift by one
  bool has_image = false;                                 // or a video
};

/// Throws UserError(kData) naming the sample when media of several shapes meet that a batch cannot hold.
Batch collate(const std::vector<Features>& rows, const CollateOptions& options);

}  // namespace lockstep
