// Features of several samples -> the tensors that enter a model.
//
// Example:
//   Batch batch = collate(rows, {.pad_token = 0});
//   batch.flow["input_ids"];   // [B,T], right-padded
#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/model/flow.h"

namespace lockstep {

/// How rows of different lengths share tensors.
enum class RowLayout {
  kRightPadded,  // [rows, longest]
  kLeftPadded,   // the same, with "positions" and "mask"
  kPacked,       // [1, sum of lengths] behind one another, with "positions" and "row_ends": no work on padding
};

struct CollateOptions {
  int32_t pad_token = 0;
  RowLayout layout = RowLayout::kRightPadded;
};

/// flow is empty when there are no rows. `lengths` are tokens without padding.
///
/// The media blocks of all rows that share a slot stand behind one another, "pixel" in "pixel_values"; what they give goes to
/// the flat places in "pixel_index", and each fact of theirs is a slot [blocks, n]. "positions" are there where rows have some ([axes,B,T]), are left-padded or packed. The
/// first label of a packed row is never a target, as it has no token before it. Steps of a talker stand behind one another
/// whatever the layout: speech_text_ids, speech_sources (places among the B*T tokens) and speech_code_ids [L],
/// speech_positions [axes,1,L], speech_labels [1,L], and speech_row_ends where there are several rows. Rows with prompts for
/// speech come one a batch.
struct Batch {
  Flow flow;
  std::vector<int64_t> lengths;
  std::vector<int64_t> next_positions;                    // of the first token behind each row
  std::vector<int64_t> row_ends;                          // in the line of packed rows; else empty
  int64_t rows = 0, input_tokens = 0, target_tokens = 0;  // targets: labels that count after the shift by one
  int64_t speech_targets = 0;                             // the same of codes
  Modalities modalities;                                  // text with any row
};

/// Throws UserError(kData) naming the sample when media of several shapes meet that a batch cannot hold.
Batch collate(const std::vector<Features>& rows, const CollateOptions& options);

}  // namespace lockstep
