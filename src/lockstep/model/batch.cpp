#include "lockstep/model/batch.h"

#include <algorithm>
#include <span>

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int32_t kIgnored = -100;

/// Where row `row` begins in its padded line, and how long lines are.
struct Layout {
  int64_t width = 0;
  bool left = false;
  int64_t start(int64_t length) const { return left ? width - length : 0; }
};

Tensor padded(const std::vector<Features>& rows, const Layout& layout, int32_t filler,
              const std::vector<int32_t> Features::*column) {
  std::vector<int32_t> values(rows.size() * static_cast<size_t>(layout.width), filler);
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& ids = rows[r].*column;
    const auto begin = static_cast<int64_t>(r) * layout.width + layout.start(static_cast<int64_t>(ids.size()));
    std::copy(ids.begin(), ids.end(), values.begin() + begin);
  }
  return from_values(std::span<const int32_t>(values), {static_cast<int64_t>(rows.size()), layout.width});
}

/// Flat positions of the placeholders in B*T, in order.
std::vector<int64_t> placeholders(const std::vector<Features>& rows, const Layout& layout, int32_t media_token) {
  std::vector<int64_t> index;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& ids = rows[r].input_ids;
    const size_t before = index.size();
    const auto begin = static_cast<int64_t>(r) * layout.width + layout.start(static_cast<int64_t>(ids.size()));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == media_token) index.push_back(begin + static_cast<int64_t>(i));
    }
    const size_t found = index.size() - before, images = rows[r].images.size();
    if ((found == 0) != (images == 0) || (images != 0 && found % images != 0)) {
      throw data_error(
          fmt::format("{}: expected a multiple of {} image placeholders (one group for each image), found {}",
                      rows[r].sample.where, images, found),
          "write one <image> mark for each image of the row");
    }
  }
  return index;
}

Tensor stack_pixels(const std::vector<Features>& rows) {
  Shape shape;
  std::vector<const PixelBlock*> blocks;
  for (const auto& row : rows) {
    for (const auto& block : row.images) {
      if (!blocks.empty() && block.shape != blocks.front()->shape) {
        throw data_error(fmt::format("{}: image prepared as {}, others in the batch as {}", row.sample.where,
                                     format_shape(block.shape), format_shape(blocks.front()->shape)),
                         "this family needs one image size: let preprocessor_config.json crop or resize to it");
      }
      blocks.push_back(&block);
    }
  }
  shape = blocks.front()->shape;
  shape.insert(shape.begin(), static_cast<int64_t>(blocks.size()));
  const Tensor pixels = empty(shape, Dtype::kF32);
  auto* out = pixels.mutable_data_ptr<float>();
  for (const auto* block : blocks) out = std::copy(block->values.begin(), block->values.end(), out);
  return pixels;
}

/// For left padding: positions count from each row's first token; padding is never looked at.
void add_positions_and_mask(Batch& batch, const Layout& layout) {
  const auto rows = static_cast<int64_t>(batch.lengths.size());
  std::vector<int64_t> positions(static_cast<size_t>(rows * layout.width), 0);
  const Tensor mask = zeros({rows, 1, layout.width, layout.width}, Dtype::kBool);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t start = layout.start(batch.lengths[static_cast<size_t>(r)]);
    for (int64_t t = start; t < layout.width; ++t) positions[static_cast<size_t>(r * layout.width + t)] = t - start;
    mask.select(0, r).narrow(2, start, layout.width - start).fill_(true);
  }
  batch.flow.set("positions", from_values(std::span<const int64_t>(positions), {rows, layout.width}));
  batch.flow.set("mask", mask.tril());
}

}  // namespace

Batch collate(const std::vector<Features>& rows, const CollateOptions& options) {
  Batch batch;
  if (rows.empty()) return batch;
  Layout layout{.left = options.left_pad};
  bool labelled = false;
  for (const auto& row : rows) {
    const auto length = static_cast<int64_t>(row.input_ids.size());
    batch.lengths.push_back(length);
    batch.input_tokens += length;
    layout.width = std::max(layout.width, length);
    labelled = labelled || !row.labels.empty();
    for (size_t i = 1; i < row.labels.size(); ++i) batch.target_tokens += row.labels[i] != kIgnored ? 1 : 0;
    batch.has_image = batch.has_image || !row.images.empty();
  }
  batch.rows = static_cast<int64_t>(rows.size());
  batch.flow.set("input_ids", padded(rows, layout, options.pad_token, &Features::input_ids));
  if (labelled) batch.flow.set("labels", padded(rows, layout, kIgnored, &Features::labels));
  if (options.left_pad) add_positions_and_mask(batch, layout);
  if (options.media_token >= 0) {
    const auto index = placeholders(rows, layout, options.media_token);
    if (batch.has_image) {
      batch.flow.set("media_index", from_values(std::span<const int64_t>(index), {static_cast<int64_t>(index.size())}));
      batch.flow.set("pixel_values", stack_pixels(rows));
    }
  } else if (batch.has_image) {
    throw data_error(fmt::format("{}: the row has images, and the model is a text model", rows.front().sample.where),
                     "take a model of a family with vision, or leave the images out");
  }
  return batch;
}

}  // namespace lockstep
