#include "lockstep/zoo/hf_inputs.h"

#include <algorithm>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

const Tensor& named(const HfInputs& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) throw data_error(fmt::format("recorded inputs: expected \"{}\", found none", name));
  return found->second;
}

/// Entries of row `row` that the mask shows.
std::vector<int32_t> shown(const Tensor& values_BT, const HfInputs& inputs, int64_t row) {
  const auto mask = inputs.find("attention_mask");
  std::vector<int32_t> out;
  for (int64_t t = 0; t < values_BT.size(1); ++t) {
    if (mask != inputs.end() && mask->second[row][t].item<int64_t>() == 0) continue;
    out.push_back(static_cast<int32_t>(values_BT[row][t].item<int64_t>()));
  }
  return out;
}

}  // namespace

std::vector<Features> rows_of_hf(const HfInputs& inputs) {
  const Tensor& ids_BT = named(inputs, "input_ids");
  std::vector<Features> rows;
  for (int64_t r = 0; r < ids_BT.size(0); ++r) {
    Features& row = rows.emplace_back();
    row.input_ids = shown(ids_BT, inputs, r);
    if (inputs.contains("labels")) row.labels = shown(inputs.at("labels"), inputs, r);
    row.sample.where = fmt::format("recorded row {}", r);
  }
  return rows;
}

std::vector<Features> text_rows_of_hf(const HfConfig&, const HfInputs& inputs) { return rows_of_hf(inputs); }

std::vector<Features> image_rows_of_hf(const HfInputs& inputs, int32_t image_token) {
  std::vector<Features> rows = rows_of_hf(inputs);
  if (!inputs.contains("pixel_values")) return rows;
  std::vector<std::vector<int32_t>> places;  // by row
  int64_t placeholders = 0;
  for (const auto& row : rows) {
    auto& of_row = places.emplace_back();
    for (size_t i = 0; i < row.input_ids.size(); ++i) {
      if (row.input_ids[i] == image_token) of_row.push_back(static_cast<int32_t>(i));
    }
    placeholders += static_cast<int64_t>(of_row.size());
  }
  const Tensor& pixels = inputs.at("pixel_values");
  const int64_t each = placeholders / std::max<int64_t>(1, pixels.size(0));
  check(each > 0 && placeholders == each * pixels.size(0), "recorded inputs: as many placeholders for every image");
  int64_t next = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (auto at = places[r].begin(); at != places[r].end(); at += each, ++next) {
      check(places[r].end() - at >= each, "recorded inputs: as many placeholders for every image");
      rows[r].media.push_back(block_of(pixels, next, next + 1));
      rows[r].media.back().places.assign(at, at + each);
    }
  }
  return rows;
}

void deal_media(std::vector<Features>& rows, std::vector<RecordedMedia> kinds) {
  std::vector<size_t> next(kinds.size(), 0);  // of each kind, the first medium that no row has
  for (auto& row : rows) {
    std::vector<int> open(kinds.size(), -1);  // of each kind, the row's medium that still takes tokens
    for (size_t i = 0; i < row.input_ids.size(); ++i) {
      const auto kind = std::ranges::find(kinds, row.input_ids[i], &RecordedMedia::token);
      if (kind == kinds.end()) continue;
      const auto k = static_cast<size_t>(kind - kinds.begin());
      if (open[k] < 0) {
        check(next[k] < kind->blocks.size(), "recorded inputs: a medium for every run of its tokens");
        open[k] = static_cast<int>(row.media.size());
        row.media.push_back(std::move(kind->blocks[next[k]++]));
      }
      auto& places = row.media[static_cast<size_t>(open[k])].places;
      places.push_back(static_cast<int32_t>(i));
      if (static_cast<int64_t>(places.size()) == kind->counts[next[k] - 1]) open[k] = -1;
    }
    check(std::ranges::all_of(open, [](int medium) { return medium < 0; }), "recorded inputs: media with all tokens");
  }
}

MediaBlock block_of(const Tensor& values, int64_t begin, int64_t end) {
  const Tensor part = to_dtype(values.narrow(0, begin, end - begin), Dtype::kF32).contiguous();
  const auto* from = part.const_data_ptr<float>();
  MediaBlock block;
  block.shape = shape_of(part);
  block.values.assign(from, from + part.numel());
  return block;
}

RowLayout layout_of(const HfInputs& inputs) {
  const auto mask = inputs.find("attention_mask");
  const bool left = mask != inputs.end() && mask->second.select(1, 0).min().item<int64_t>() == 0;
  return left ? RowLayout::kLeftPadded : RowLayout::kRightPadded;
}

}  // namespace lockstep
