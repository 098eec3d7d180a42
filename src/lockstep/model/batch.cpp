#include "lockstep/model/batch.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text_format.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

constexpr int32_t kIgnored = -100;

/// The tensor that the rows share, and where in it each begins.
struct Layout {
  int64_t lines = 0, width = 0;
  std::vector<int64_t> starts, ends;  // flat, of each row's tokens

  Layout(const std::vector<Features>& rows, RowLayout kind) {
    int64_t longest = 0, total = 0;
    for (const auto& row : rows) {
      const auto length = static_cast<int64_t>(row.input_ids.size());
      longest = std::max(longest, length);
      total += length;
    }
    const bool packed = kind == RowLayout::kPacked;
    lines = packed ? 1 : static_cast<int64_t>(rows.size());
    width = packed ? total : longest;
    for (const auto& row : rows) {
      const auto length = static_cast<int64_t>(row.input_ids.size());
      int64_t start = packed ? (ends.empty() ? 0 : ends.back()) : static_cast<int64_t>(starts.size()) * width;
      if (kind == RowLayout::kLeftPadded) start += width - length;
      starts.push_back(start);
      ends.push_back(start + length);
    }
  }
};

/// [lines, width].
Tensor laid_out(const std::vector<Features>& rows, const Layout& layout, int32_t filler,
                const std::vector<int32_t> Features::*column) {
  std::vector<int32_t> values(static_cast<size_t>(layout.lines * layout.width), filler);
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& ids = rows[r].*column;
    std::copy(ids.begin(), ids.end(), values.begin() + layout.starts[r]);
  }
  return from_values(std::span<const int32_t>(values), {layout.lines, layout.width});
}

/// A block and where its row begins among the batch's tokens.
struct PlacedBlock {
  const MediaBlock* block;
  const Features* row;
  int64_t row_start;
};

using Tail = std::span<const int64_t>;
Tail tail_of(const MediaBlock& block) { return Tail(block.shape).subspan(1); }

/// Flat positions of the placeholders, block by block.
Tensor index_of(const std::vector<PlacedBlock>& blocks) {
  std::vector<int64_t> index;
  for (const auto& [block, row, start] : blocks) {
    check(!block->places.empty(), "media come with placeholders");
    for (const int32_t place : block->places) {
      check(place >= 0 && static_cast<size_t>(place) < row->input_ids.size(),
            "a placeholder of media stands among the row's tokens");
      index.push_back(start + place);
    }
  }
  return from_values(std::span<const int64_t>(index), {static_cast<int64_t>(index.size())});
}

/// Blocks laid behind one another: their shapes may differ in the first dimension alone. Blocks without values, of a
/// rehearsal, give a tensor without bytes.
Tensor values_of(const std::vector<PlacedBlock>& blocks) {
  const MediaBlock& first = *blocks.front().block;
  Shape shape = first.shape;
  check(!shape.empty(), "prepared media have a first dimension");
  shape[0] = 0;
  for (const auto& [block, row, start] : blocks) {
    check(!block->shape.empty(), "prepared media have a first dimension");
    if (!std::ranges::equal(tail_of(*block), tail_of(first))) {
      throw data_error(
          fmt::format("{}: {} prepared as {}, others in the batch as {}", row->sample.where,
                      modality_name(block->modality), format_shape(block->shape), format_shape(first.shape)),
          "this family needs one image size: let preprocessor_config.json crop or resize to it");
    }
    shape[0] += block->shape[0];
  }
  const bool hollow = first.values.empty();
  Tensor values = empty(shape, Dtype::kF32, hollow ? "meta" : "cpu");
  auto* out = hollow ? nullptr : values.mutable_data_ptr<float>();
  for (const auto& [block, row, start] : blocks) {
    check(block->values.empty() == hollow, "all media of a batch have values, or none");
    out = std::copy(block->values.begin(), block->values.end(), out);
  }
  return values;
}

void add_facts(Flow& flow, const std::vector<PlacedBlock>& blocks) {
  for (const auto& [slot, first] : blocks.front().block->facts) {
    std::vector<int64_t> values;
    for (const auto& [block, row, start] : blocks) {
      const auto fact = block->facts.find(slot);
      check(fact != block->facts.end() && fact->second.size() == first.size(),
            "all media of a batch state \"" + slot + "\"");
      values.insert(values.end(), fact->second.begin(), fact->second.end());
    }
    flow.set(slot, from_values(std::span<const int64_t>(values),
                               {static_cast<int64_t>(blocks.size()), static_cast<int64_t>(first.size())}));
  }
}

void add_media(Flow& flow, const std::vector<Features>& rows, const Layout& layout) {
  std::map<std::string, std::vector<PlacedBlock>> by_slot;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (const auto& block : rows[r].media) by_slot[block.slot].push_back({&block, &rows[r], layout.starts[r]});
  }
  for (const auto& [slot, blocks] : by_slot) {
    flow.set(index_slot(slot), index_of(blocks));
    flow.set(values_slot(slot), values_of(blocks));
    add_facts(flow, blocks);
  }
}

/// What follows goes on behind the last token, as in training, on all axes alike.
int64_t next_position(const Features& row) {
  const size_t tokens = row.input_ids.size();
  if (row.positions.empty()) return static_cast<int64_t>(tokens);
  int64_t last = 0;
  for (size_t i = tokens; i <= row.positions.size(); i += tokens) last = std::max<int64_t>(last, row.positions[i - 1]);
  return last + 1;
}

/// How many numbers place a token: 1, or as many as the rows say.
int64_t axes_of(const std::vector<Features>& rows) {
  int64_t axes = 1;
  for (const auto& row : rows) {
    if (row.positions.empty()) continue;
    check(row.positions.size() % row.input_ids.size() == 0, "positions of every token on each axis");
    axes = static_cast<int64_t>(row.positions.size() / row.input_ids.size());
  }
  return axes;
}

/// [axes,B,T], or [B,T] for one axis; 0 at padding. Rows that say nothing count their tokens on every axis.
Tensor positions_of(const std::vector<Features>& rows, const Layout& layout) {
  const int64_t axes = axes_of(rows), area = layout.lines * layout.width;
  std::vector<int64_t> values(static_cast<size_t>(axes * area), 0);
  for (size_t r = 0; r < rows.size(); ++r) {
    const Features& row = rows[r];
    const auto length = static_cast<int64_t>(row.input_ids.size());
    check(row.positions.empty() || static_cast<int64_t>(row.positions.size()) == axes * length,
          "rows of one batch have positions on the same axes");
    for (int64_t a = 0; a < axes; ++a) {
      for (int64_t t = 0; t < length; ++t) {
        values[static_cast<size_t>(a * area + layout.starts[r] + t)] =
            row.positions.empty() ? t : row.positions[static_cast<size_t>(a * length + t)];
      }
    }
  }
  return from_values(std::span<const int64_t>(values),
                     axes == 1 ? Shape{layout.lines, layout.width} : Shape{axes, layout.lines, layout.width});
}

/// [1,steps], or [axes,1,steps]: of the talkers' steps that have a place, rows behind one another.
Tensor speech_positions_of(const std::vector<Features>& rows) {
  const int64_t axes = axes_of(rows);
  std::vector<int64_t> values;
  for (int64_t axis = 0; axis < axes; ++axis) {
    for (const auto& row : rows) {
      if (!row.speech) continue;
      const auto& own = row.speech->positions;
      const bool alike = row.positions.empty();  // its steps are counted, on every axis
      const auto steps = static_cast<int64_t>(own.size()) / (alike ? 1 : axes);
      const auto begin = own.begin() + (alike ? 0 : axis * steps);
      values.insert(values.end(), begin, begin + steps);
    }
  }
  const int64_t steps = static_cast<int64_t>(values.size()) / axes;
  return from_values(std::span<const int64_t>(values), axes == 1 ? Shape{1, steps} : Shape{axes, 1, steps});
}

void add_speech(Flow& flow, const std::vector<Features>& rows, const Layout& layout) {
  std::vector<int64_t> text, sources, codes, labels, ends;
  bool prompts = false;
  for (size_t r = 0; r < rows.size(); ++r) {
    if (!rows[r].speech) continue;
    const SpeechSteps& steps = *rows[r].speech;
    for (const int32_t place : steps.sources) sources.push_back(place < 0 ? -1 : layout.starts[r] + place);
    text.insert(text.end(), steps.text.begin(), steps.text.end());
    codes.insert(codes.end(), steps.codes.begin(), steps.codes.end());
    labels.insert(labels.end(), steps.labels.begin(), steps.labels.end());
    ends.push_back(static_cast<int64_t>(text.size()));
    prompts = prompts || steps.labels.empty();
  }
  if (ends.empty()) return;
  check(!prompts || ends.size() == 1, "a prompt for speech stands alone in its batch");
  const auto set = [&](const char* slot, const std::vector<int64_t>& values, bool as_row) {
    const auto count = static_cast<int64_t>(values.size());
    flow.set(slot, from_values(std::span<const int64_t>(values), as_row ? Shape{1, count} : Shape{count}));
  };
  set("speech_text_ids", text, false);
  set("speech_sources", sources, false);
  set("speech_code_ids", codes, false);
  flow.set("speech_positions", speech_positions_of(rows));
  if (!prompts) set("speech_labels", labels, true);
  if (ends.size() > 1) set("speech_row_ends", ends, false);
}

/// For left padding: what comes before a row's first token is never looked at.
Tensor mask_of(const std::vector<int64_t>& lengths, const Layout& layout) {
  const Tensor mask = zeros({layout.lines, 1, layout.width, layout.width}, Dtype::kBool);
  for (size_t r = 0; r < lengths.size(); ++r) {
    mask.select(0, static_cast<int64_t>(r)).narrow(2, layout.width - lengths[r], lengths[r]).fill_(true);
  }
  return mask.tril();
}

Tensor labels_of(const std::vector<Features>& rows, const Layout& layout, bool packed) {
  const Tensor labels = laid_out(rows, layout, kIgnored, &Features::labels);
  if (!packed) return labels;
  for (const int64_t start : layout.starts) labels.select(0, 0).narrow(0, start, 1).fill_(kIgnored);
  return labels;
}

/// Where labels count unlike one another: those of each weight by themselves, [weights, lines, width], and the weights.
void add_weights(Flow& flow, const std::vector<Features>& rows, const Layout& layout, const Tensor& labels) {
  std::set<float> weights;
  for (const auto& row : rows) {
    if (row.weights.empty()) weights.insert(1);
    weights.insert(row.weights.begin(), row.weights.end());
  }
  if (weights.size() < 2 && *weights.begin() == 1) return;
  std::vector<Tensor> parts;
  for (const float weight : weights) {
    std::vector<int32_t> of_weight(static_cast<size_t>(layout.lines * layout.width), 0);
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto begin = static_cast<size_t>(layout.starts[r]);
      for (size_t i = 0; i < rows[r].labels.size(); ++i)
        of_weight[begin + i] = (rows[r].weights.empty() ? 1 : rows[r].weights[i]) == weight ? 1 : 0;
    }
    const Tensor others = from_values(std::span<const int32_t>(of_weight), {layout.lines, layout.width}).eq(0);
    parts.push_back(labels.masked_fill(others, kIgnored));
  }
  flow.set("weighted_labels", at::stack(parts));
  const std::vector<float> values(weights.begin(), weights.end());
  flow.set("label_weights", from_values(std::span<const float>(values), {static_cast<int64_t>(values.size())}));
}

}  // namespace

Batch collate(const std::vector<Features>& rows, const CollateOptions& options) {
  Batch batch;
  if (rows.empty()) return batch;
  const Layout layout(rows, options.layout);
  const bool packed = options.layout == RowLayout::kPacked, left = options.layout == RowLayout::kLeftPadded;
  bool labelled = false, placed = packed || left;
  for (const auto& row : rows) {
    const auto length = static_cast<int64_t>(row.input_ids.size());
    batch.lengths.push_back(length);
    batch.next_positions.push_back(next_position(row));
    batch.input_tokens += length;
    labelled = labelled || !row.labels.empty();
    placed = placed || !row.positions.empty();
    for (size_t i = 1; i < row.labels.size(); ++i) batch.target_tokens += row.labels[i] != kIgnored ? 1 : 0;
    batch.modalities |= Modality::kText;
    for (const auto& block : row.media) batch.modalities |= block.modality;
    if (!row.speech) continue;
    batch.modalities |= Modality::kSpeech;
    for (const int32_t label : row.speech->labels) batch.speech_targets += label != kIgnored ? 1 : 0;
  }
  batch.rows = static_cast<int64_t>(rows.size());
  batch.flow.set("input_ids", laid_out(rows, layout, options.pad_token, &Features::input_ids));
  if (labelled) {
    const Tensor labels = labels_of(rows, layout, packed);
    batch.flow.set("labels", labels);
    if (std::ranges::any_of(rows, [](const Features& row) { return !row.weights.empty(); }))
      add_weights(batch.flow, rows, layout, labels);
  }
  if (placed) batch.flow.set("positions", positions_of(rows, layout));
  if (left) batch.flow.set("mask", mask_of(batch.lengths, layout));
  if (packed) {
    batch.row_ends = layout.ends;
    batch.flow.set("row_ends", from_values(std::span<const int64_t>(layout.ends), {batch.rows}));
  }
  add_media(batch.flow, rows, layout);
  add_speech(batch.flow, rows, layout);
  return batch;
}

}  // namespace lockstep
