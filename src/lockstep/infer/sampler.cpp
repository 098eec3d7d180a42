#include "lockstep/infer/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/random.h"
#include "lockstep/infer/not_finite.h"

namespace lockstep {
namespace {

void penalise(std::span<float> logits, std::span<const int32_t> seen, double penalty) {
  if (penalty == 1.0) return;
  std::vector<int32_t> once(seen.begin(), seen.end());
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const int32_t id : once) {
    if (id < 0 || static_cast<size_t>(id) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit < 0 ? logit * penalty : logit / penalty);
  }
}

/// Tokens that would complete `size` of them which stand there already.
void ban_repeats(std::span<float> logits, std::span<const int32_t> seen, int64_t size) {
  if (size <= 0 || static_cast<int64_t>(seen.size()) < size) return;
  const auto before = seen.last(static_cast<size_t>(size) - 1);
  for (size_t at = 0; at + before.size() < seen.size(); ++at) {
    const int32_t next = seen[at + before.size()];
    if (next < 0 || static_cast<size_t>(next) >= logits.size()) continue;
    if (!std::ranges::equal(before, seen.subspan(at, before.size()))) continue;
    logits[static_cast<size_t>(next)] = -std::numeric_limits<float>::infinity();
  }
}

/// Several at a time, as below.
bool any_nan(std::span<const float> logits) {
  constexpr size_t kTogether = 64;
  size_t i = 0;
  int found = 0;
  for (; i + kTogether <= logits.size() && found == 0; i += kTogether) {
    for (size_t k = 0; k < kTogether; ++k) found |= static_cast<int>(logits[i + k] != logits[i + k]);
  }
  for (; i < logits.size(); ++i) found |= static_cast<int>(logits[i] != logits[i]);
  return found != 0;
}

/// The largest logit; of those tied the lowest id, as argmax does. Several at a time: one after the other a large vocabulary
/// took as long as a layer.
int32_t largest(std::span<const float> logits) {
  constexpr size_t kTogether = 16;
  std::array<float, kTogether> best{};
  best.fill(-std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kTogether <= logits.size(); i += kTogether) {
    for (size_t k = 0; k < kTogether; ++k) best[k] = logits[i + k] > best[k] ? logits[i + k] : best[k];
  }
  float top = *std::max_element(best.begin(), best.end());
  for (; i < logits.size(); ++i) top = std::max(top, logits[i]);
  const auto found = std::find(logits.begin(), logits.end(), top);
  return static_cast<int32_t>(found - logits.begin());
}

/// Candidates by falling logit, at most `top_k`, with their unnormalised probabilities.
struct Candidates {
  std::vector<int32_t> ids;
  std::vector<double> weights;
  double total = 0;
};

Candidates rank_candidates(std::span<const float> logits, const SamplingOptions& options) {
  Candidates out;
  out.ids.resize(logits.size());
  std::iota(out.ids.begin(), out.ids.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const float left = logits[static_cast<size_t>(a)], right = logits[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  };
  const bool cut = options.top_k > 0 && static_cast<size_t>(options.top_k) < logits.size();
  const auto kept = cut ? options.top_k : static_cast<int64_t>(logits.size());
  std::partial_sort(out.ids.begin(), out.ids.begin() + kept, out.ids.end(), before);
  out.ids.resize(static_cast<size_t>(kept));
  const double best = logits[static_cast<size_t>(out.ids[0])];
  for (const int32_t id : out.ids) {
    out.weights.push_back(std::exp((logits[static_cast<size_t>(id)] - best) / options.temperature));
    out.total += out.weights.back();
  }
  return out;
}

/// Keeps the smallest set whose probability reaches top_p.
void cut_to_nucleus(Candidates& candidates, double top_p) {
  if (top_p >= 1.0) return;
  double sum = 0;
  size_t kept = 0;
  while (kept < candidates.ids.size() && (kept == 0 || sum < top_p * candidates.total))
    sum += candidates.weights[kept++];
  candidates.ids.resize(kept);
  candidates.weights.resize(kept);
  candidates.total = sum;
}

/// Keeps those that have so large a part of the first one's probability.
void cut_below_part(Candidates& candidates, double min_p) {
  if (min_p <= 0) return;
  size_t kept = 1;
  while (kept < candidates.ids.size() && candidates.weights[kept] >= min_p * candidates.weights[0]) ++kept;
  candidates.ids.resize(kept);
  candidates.weights.resize(kept);
  candidates.total = std::accumulate(candidates.weights.begin(), candidates.weights.end(), 0.0);
}

}  // namespace

int32_t next_token(std::span<float> logits, std::span<const int32_t> seen, const SamplingOptions& options,
                   DrawIndex draw) {
  if (any_nan(logits)) {
    throw UserError(
        ExitCode::kNumerics,
        fmt::format("row {}: the model computes NaN for token {} of its answer", draw.row + 1, draw.position + 1),
        kNotFiniteHint);
  }
  penalise(logits, seen, options.repetition_penalty);
  ban_repeats(logits, seen, options.no_repeat_ngram_size);
  const int32_t likeliest = largest(logits);
  if (!std::isfinite(logits[static_cast<size_t>(likeliest)])) {
    throw UserError(
        ExitCode::kNumerics,
        fmt::format("row {}: the model computes infinity for token {} of its answer", draw.row + 1, draw.position + 1),
        kNotFiniteHint);
  }
  if (options.temperature <= 0) return likeliest;
  Candidates candidates = rank_candidates(logits, options);
  cut_to_nucleus(candidates, options.top_p);
  cut_below_part(candidates, options.min_p);
  SplitMix64 random(options.seed, (static_cast<uint64_t>(draw.row) << 24) + static_cast<uint64_t>(draw.position));
  const double at = static_cast<double>(random.next() >> 11) * 0x1.0p-53 * candidates.total;
  double sum = 0;
  for (size_t i = 0; i < candidates.ids.size(); ++i) {
    sum += candidates.weights[i];
    if (at < sum) return candidates.ids[i];
  }
  return candidates.ids.back();
}

}  // namespace lockstep
