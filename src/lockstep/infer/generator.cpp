#include "lockstep/infer/generator.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <ATen/core/Tensor.h>

#include "lockstep/comm/gather_nested.h"
#include "lockstep/tensor/make.h"

namespace lockstep {
namespace {

Tensor column(const std::vector<int64_t>& values) {
  return from_values(std::span<const int64_t>(values), {static_cast<int64_t>(values.size())});
}

/// A tensor a column; the tokens of all rows stand behind one another.
Value columns(const std::vector<Generated>& mine) {
  std::vector<int64_t> rows, stopped, counts, tokens;
  for (const auto& one : mine) {
    rows.push_back(one.row);
    stopped.push_back(one.stopped ? 1 : 0);
    counts.push_back(static_cast<int64_t>(one.tokens.size()));
    tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
  }
  return Value::Dict{
      {"row", column(rows)}, {"stopped", column(stopped)}, {"count", column(counts)}, {"tokens", column(tokens)}};
}

void add_rows(const Value::Dict& columns, std::vector<Generated>& out) {
  const auto values = [&](size_t i) { return columns.at(i).second.tensor()->data_ptr<int64_t>(); };
  const int64_t *rows = values(0), *stopped = values(1), *counts = values(2), *token = values(3);
  for (int64_t i = 0; i < columns[0].second.tensor()->numel(); ++i) {
    Generated row{.row = rows[i], .tokens = {}, .stopped = stopped[i] != 0};
    for (const int64_t* end = token + counts[i]; token < end; ++token)
      row.tokens.push_back(static_cast<int32_t>(*token));
    out.push_back(std::move(row));
  }
}

}  // namespace

std::vector<Generated> Generator::run_all(const PromptSource& next, const GenerateOptions& options,
                                          const OnRow& on_row) {
  std::vector<Generated> mine, all;
  run(next, options, [&](const Generated& row) {
    mine.push_back(row);
    if (on_row) on_row(row);
  });
  for (const Value& of_rank : gather_nested(control_, columns(mine), "generated rows")) add_rows(*of_rank.dict(), all);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  return all;
}

void Generator::run(const PromptSource& next, const GenerateOptions& options, const OnRow& on_row) {
  if (!prompts_ || prompts_->keys().slots() != options.batch_size) {
    prompts_.emplace(model_.dims.layers, options.batch_size);
  }
  DecodeSlots slots(model_.dims, options, *prompts_, options.remember_media ? &media_ : nullptr);
  turns_.run(slots, next, on_row, "prompts and answers");
}

PromptSource dealt_prompts(int64_t count, const Communicator& control,
                           std::function<std::optional<Features>(int64_t row)> prompt_of_row) {
  return [count, prompt_of_row = std::move(prompt_of_row), row = int64_t{control.rank()},
          stride = int64_t{control.size()}]() mutable -> std::optional<Prompt> {
    while (row < count) {
      const int64_t mine = std::exchange(row, row + stride);
      if (auto features = prompt_of_row(mine)) return Prompt{mine, std::move(*features)};
    }
    return std::nullopt;
  };
}

}  // namespace lockstep
