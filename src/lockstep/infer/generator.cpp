#include "lockstep/infer/generator.h"

#include <algorithm>
#include <cstring>
#include <memory>
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

std::vector<Generated> Generator::run(int64_t count, const PromptOfRow& prompt, const GenerateOptions& options) {
  const auto mine = run_mine(count, prompt, options);
  std::vector<Generated> all;
  for (const auto& bytes : control_.all_gather_bytes(packed(mine), "generated rows")) unpack(bytes, all);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.row < b.row; });
  return all;
}

/// One pass a turn: begin the next block of rows when the last is done, say what is here, and run what is anywhere.
std::vector<Generated> Generator::run_mine(int64_t count, const PromptOfRow& prompt, const GenerateOptions& options) {
  std::vector<Generated> done;
  std::unique_ptr<DecodeBatch> batch;
  std::optional<Failure> failure;
  int64_t next = control_.rank() * options.batch_size;
  const auto begin_next = [&] {
    std::vector<Prompt> prompts;
    for (int64_t row = next; row < std::min(count, next + options.batch_size); ++row) {
      if (auto features = prompt(row)) prompts.push_back({row, std::move(*features)});
    }
    next += control_.size() * options.batch_size;
    if (!prompts.empty()) batch = std::make_unique<DecodeBatch>(model_.dims, std::move(prompts), options);
  };
  while (true) {
    try {
      while (batch == nullptr && next < count) begin_next();
    } catch (const std::exception& error) {
      failure = describe_failure(error);
    }
    const Presence here{.rows = batch != nullptr, .image = batch != nullptr && batch->has_image()};
    const Agreement agreed = meet(here, failure.has_value());
    if (agreed.stop || !agreed.any_rows) break;
    pass(batch.get(), here, {.rows = agreed.any_rows, .image = agreed.any_image});
    if (batch == nullptr || !batch->done()) continue;
    auto results = std::move(*batch).results();
    done.insert(done.end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
    batch.reset();
  }
  agree_no_failure(control_, "prompts", failure);
  return done;
}

/// What is anywhere: only where every pass concerns all ranks is it worth asking them.
Agreement Generator::meet(Presence here, bool failed) {
  if (!gathers_) return {.any_rows = here.rows, .any_image = here.image, .stop = failed};
  return agree(control_, {.has_rows = here.rows, .has_image = here.image, .stop = failed});
}

void Generator::pass(DecodeBatch* batch, Presence here, Presence anywhere) {
  Context context{.logits = LogitsWanted::kLast};
  if (batch != nullptr) context.cache = batch->cache();
  const Flow out = executor_.forward(batch == nullptr ? Flow{} : batch->inputs(), context, here, anywhere);
  if (batch == nullptr) return;
  const Tensor& logits = out["logits"];
  batch->take(logits.reshape({logits.size(0), logits.size(-1)}));
}

}  // namespace lockstep
