#include "lockstep/infer/generator.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include "lockstep/comm/together.h"

namespace lockstep {
namespace {

/// Rows as bytes: [row, stopped, count, tokens…] in 64-bit words.
std::string packed(const std::vector<Generated>& mine) {
  std::vector<int64_t> words;
  for (const auto& row : mine) {
    words.push_back(row.row);
    words.push_back(row.stopped ? 1 : 0);
    words.push_back(static_cast<int64_t>(row.tokens.size()));
    words.insert(words.end(), row.tokens.begin(), row.tokens.end());
  }
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t)};
}

void unpack(const std::string& bytes, std::vector<Generated>& out) {
  if (bytes.empty()) return;
  std::vector<int64_t> words(bytes.size() / sizeof(int64_t));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  for (size_t at = 0; at < words.size();) {
    Generated row{.row = words[at], .tokens = {}, .stopped = words[at + 1] != 0};
    const auto end = at + 3 + static_cast<size_t>(words[at + 2]);
    for (at += 3; at < end; ++at) row.tokens.push_back(static_cast<int32_t>(words[at]));
    out.push_back(std::move(row));
  }
}

}  // namespace

std::vector<Generated> Generator::run(const PromptSource& next, const GenerateOptions& options) {
  std::vector<Generated> mine, all;
  run(next, options, [&](const Generated& row) { mine.push_back(row); });
  for (const auto& bytes : control_.all_gather_bytes(packed(mine), "generated rows")) unpack(bytes, all);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  return all;
}

/// One pass a turn: fill the free slots, say what is here, and run what is anywhere.
void Generator::run(const PromptSource& next, const GenerateOptions& options, const OnRow& on_row) {
  DecodeSlots slots(model_.dims, options);
  std::optional<Failure> failure;
  bool more = true;
  const auto guarded = [&](const auto& work) {
    try {
      work();
    } catch (const std::exception& error) {
      failure = describe_failure(error);
    }
  };
  while (true) {
    std::vector<SubBatch> parts;
    guarded([&] {
      while (more && !slots.full()) {
        auto prompt = next();
        more = prompt.has_value();
        if (prompt) slots.admit(std::move(*prompt));
      }
      parts = slots.parts();
    });
    const bool image = std::any_of(parts.begin(), parts.end(), [](const SubBatch& part) { return part.image; });
    const Agreement agreed = meet({.rows = !parts.empty(), .image = image}, failure.has_value());
    if (agreed.stop || !agreed.any_rows) break;
    ++passes_;
    executor_.forward(parts, {.rows = agreed.any_rows, .image = agreed.any_image});
    guarded([&] {
      for (const auto& row : slots.take(parts)) on_row(row);
    });
  }
  agree_no_failure(control_, "prompts and answers", failure);
}

/// What is anywhere: only where every pass concerns all ranks is it worth asking them.
Agreement Generator::meet(Presence here, bool failed) {
  if (!gathers_) return {.any_rows = here.rows, .any_image = here.image, .stop = failed};
  return agree(control_, {.has_rows = here.rows, .has_image = here.image, .stop = failed});
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
