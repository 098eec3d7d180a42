// What transformers' processors give -> our features: so that recorded inputs run through the same collator as rows.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/features.h"
#include "lockstep/model/batch.h"
#include "lockstep/tensor/fwd.h"

namespace lockstep {

class HfConfig;

/// By transformers' names: input_ids, attention_mask, labels [B,T] i64, pixel_values, image_grid_thw, …
using HfInputs = std::map<std::string, Tensor>;

/// Ids and labels of each row without padding.
std::vector<Features> rows_of_hf(const HfInputs& inputs);
/// The same, for families without media.
std::vector<Features> text_rows_of_hf(const HfConfig& config, const HfInputs& inputs);
/// Rows whose images all have as many features: pixel_values [N, ..], dealt to the rows by their placeholders.
std::vector<Features> image_rows_of_hf(const HfInputs& inputs, int32_t image_token);

/// Recorded media of one kind, in the order of their tokens, and how many of these each fills.
struct RecordedMedia {
  int32_t token = -1;
  std::vector<MediaBlock> blocks = {};
  std::vector<int64_t> counts = {};

  void add(MediaBlock block, int64_t count) {
    blocks.push_back(std::move(block));
    counts.push_back(count);
  }
};
/// Gives each row the media whose tokens stand in it; those of different kinds may interleave.
void deal_media(std::vector<Features>& rows, std::vector<RecordedMedia> kinds);

/// Rows [begin, end) of a float tensor's first dimension.
MediaBlock block_of(const Tensor& values, int64_t begin, int64_t end);
/// Rows are padded on the left for generation.
RowLayout layout_of(const HfInputs& inputs);

}  // namespace lockstep
