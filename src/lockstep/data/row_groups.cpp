#include "lockstep/data/row_groups.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/data/loader.h"

namespace lockstep {
namespace {

constexpr uint64_t kFnvStart = 14695981039346656037ULL, kFnvPrime = 1099511628211ULL;

void mix(uint64_t& hash, int64_t value) { hash = (hash ^ static_cast<uint64_t>(value)) * kFnvPrime; }

int64_t tokens_of(std::span<const RowSize> sizes, int64_t row) { return sizes[static_cast<size_t>(row)].tokens; }

/// Places of `order`, by bin, in the order in which the rows came to be placed.
Bins filled_in_order(std::span<const RowSize> sizes, int64_t capacity, std::span<const int64_t> order) {
  Bins bins;
  int64_t left = 0;
  for (size_t place = 0; place < order.size(); ++place) {
    const int64_t tokens = tokens_of(sizes, order[place]);
    if (tokens == 0) continue;
    if (bins.empty() || tokens > left) {
      bins.emplace_back();
      left = capacity;
    }
    bins.back().push_back(static_cast<int64_t>(place));
    left -= tokens;
  }
  return bins;
}

Bins filled_best(std::span<const RowSize> sizes, int64_t capacity, std::span<const int64_t> order) {
  std::vector<int64_t> places;
  for (size_t place = 0; place < order.size(); ++place) {
    if (tokens_of(sizes, order[place]) > 0) places.push_back(static_cast<int64_t>(place));
  }
  const auto length = [&](int64_t place) { return tokens_of(sizes, order[static_cast<size_t>(place)]); };
  std::ranges::stable_sort(places, std::greater{}, length);
  Bins bins;
  std::set<std::pair<int64_t, size_t>> room;  // tokens that a bin still takes, and its number
  for (const int64_t place : places) {
    auto best = room.lower_bound({length(place), 0});
    const size_t bin = best == room.end() ? bins.size() : best->second;
    int64_t left = capacity;
    if (best == room.end()) {
      bins.emplace_back();
    } else {
      left = best->first;
      room.erase(best);
    }
    bins[bin].push_back(place);
    left -= length(place);
    if (left > 0) room.insert({left, bin});
  }
  for (auto& bin : bins) std::ranges::sort(bin);
  std::ranges::sort(bins, {}, [](const std::vector<int64_t>& bin) { return bin.front(); });
  return bins;
}

/// Longest first within each stretch; nothing else moves.
void sort_stretches(std::span<const RowSize> sizes, int64_t stretch, std::vector<int64_t>& order) {
  const auto count = static_cast<int64_t>(order.size());
  for (int64_t begin = 0; begin < count; begin += stretch) {
    std::ranges::stable_sort(order.begin() + begin, order.begin() + std::min(count, begin + stretch), std::greater{},
                             [&](int64_t row) { return tokens_of(sizes, row); });
  }
}

}  // namespace

RowSize size_of(const Features& row) {
  RowSize size{.tokens = static_cast<int32_t>(row.input_ids.size()), .media = static_cast<int32_t>(row.media.size())};
  for (const auto& block : row.media) {
    size.media_values +=
        std::accumulate(block.shape.begin(), block.shape.end(), int64_t{1}, [](int64_t a, int64_t b) { return a * b; });
  }
  return size;
}

Bins fill_bins(std::span<const RowSize> sizes, const BinOptions& options, std::span<const int64_t> order) {
  check(options.capacity > 0, "bins hold tokens");
  Bins bins = options.sequential ? filled_in_order(sizes, options.capacity, order)
                                 : filled_best(sizes, options.capacity, order);
  for (auto& bin : bins) {
    for (int64_t& row : bin) row = order[static_cast<size_t>(row)];
  }
  return bins;
}

std::vector<int64_t> by_length(std::span<const RowSize> sizes, int64_t chunk, std::vector<int64_t> order) {
  constexpr int64_t kMostChunks = 50, kLeastStretches = 4;
  const auto count = static_cast<int64_t>(order.size());
  const int64_t chunks = std::clamp<int64_t>(count / (chunk * kLeastStretches), 1, kMostChunks);
  sort_stretches(sizes, chunks * chunk, order);
  // What needs most memory comes at once, so that a run which cannot hold it does not end late.
  const auto longest = std::ranges::max_element(order, {}, [&](int64_t row) { return tokens_of(sizes, row); });
  if (longest != order.end()) std::iter_swap(order.begin(), longest);
  return order;
}

std::vector<int64_t> by_modality_and_length(std::span<const RowSize> sizes, int64_t chunk,
                                            const std::vector<int64_t>& order, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> whole, rest;
  for (const bool with_media : {true, false}) {
    std::vector<int64_t> kind;
    std::ranges::copy_if(order, std::back_inserter(kind),
                         [&](int64_t row) { return (sizes[static_cast<size_t>(row)].media > 0) == with_media; });
    kind = by_length(sizes, chunk, std::move(kind));
    const auto border = kind.begin() + static_cast<std::ptrdiff_t>(kind.size()) / chunk * chunk;
    whole.insert(whole.end(), kind.begin(), border);
    rest.insert(rest.end(), border, kind.end());
  }
  std::vector<int64_t> out;
  const auto chunks = static_cast<int64_t>(whole.size()) / chunk;
  // Another number than that of the rows' own order, which chunks would else repeat.
  for (const int64_t one : epoch_order(chunks, seed ^ kFnvPrime, epoch, /*shuffle=*/true)) {
    out.insert(out.end(), whole.begin() + one * chunk, whole.begin() + (one + 1) * chunk);
  }
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

std::string fingerprint_of(const Bins& bins) {
  uint64_t hash = kFnvStart;
  for (const auto& bin : bins) {
    for (const int64_t row : bin) mix(hash, row);
    mix(hash, -1);
  }
  return fmt::format("{:016x}", hash);
}

std::string fingerprint_of(std::span<const RowSize> sizes) {
  uint64_t hash = kFnvStart;
  for (const auto& size : sizes) {
    mix(hash, size.tokens);
    mix(hash, size.media);
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace lockstep
