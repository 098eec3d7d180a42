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
  int32_t media_token = -1;  // placeholder id whose positions receive media rows; -1: a text model
  bool left_pad = false;     // generation: with "positions" and "mask"
};

/// flow is empty when there are no rows. `lengths` are tokens without padding.
struct Batch {
  Flow flow;
  std::vector<int64_t> lengths;
  int64_t rows = 0, input_tokens = 0, target_tokens = 0;  // targets: labels that count after the shift by one
  bool has_image = false;
};

/// Throws UserError(kData) naming the sample when images and placeholders do not fit or pixel shapes differ.
Batch collate(const std::vector<Features>& rows, const CollateOptions& options);

}  // namespace lockstep
