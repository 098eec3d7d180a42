// Rows brought together by their sizes: bins of so many tokens, or an order in which neighbours are about as long.
//
// Example:
//   const Bins bins = fill_bins(sizes, {.capacity = 4096}, epoch_order(data.size(), seed, 0, true));
//   Loader loader(data, processor, {.bins = std::make_shared<const Bins>(bins)});   // a "row" of a batch is a bin
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/features.h"

namespace lockstep {

/// What a row asks for when it is prepared.
struct RowSize {
  int32_t tokens = 0;        // 0: it cannot be used
  int32_t media = 0;         // blocks
  int64_t media_values = 0;  // of all blocks
  bool operator==(const RowSize&) const = default;
};
RowSize size_of(const Features& row);

using Bins = std::vector<std::vector<int64_t>>;  // of rows of a data set

struct BinOptions {
  int64_t capacity = 0;  // tokens
  bool sequential =
      false;  // a row goes to the newest bin or to a new one; else to the one that it fills best, the longest first
};

/// Every usable row in one bin; one that is longer than a bin alone in its own. Bins, and the rows in each, stand as their
/// rows do in `order`. Whatever the machine, the same sizes and order give the same bins.
Bins fill_bins(std::span<const RowSize> sizes, const BinOptions& options, std::span<const int64_t> order);

/// Stretches of fifty chunks (a quarter of all rows at most) have their rows longest first, and the first chunk begins with
/// the longest row of all. `chunk`: rows that are trained at once. Source: transformers 5.23
/// trainer_pt_utils.get_length_grouped_indices.
std::vector<int64_t> by_length(std::span<const RowSize> sizes, int64_t chunk, std::vector<int64_t> order);

/// The same of rows with media and of rows without, in chunks of one kind, which come in the order that `seed` and `epoch` give; what
/// remains of both kinds makes the last. Source: LLaVA 1.2 llava_trainer.get_modality_length_grouped_indices.
std::vector<int64_t> by_modality_and_length(std::span<const RowSize> sizes, int64_t chunk,
                                            const std::vector<int64_t>& order, uint64_t seed, int64_t epoch);

/// Sixteen hexadecimal digits: equal where the bins, or the sizes, are.
std::string fingerprint_of(const Bins& bins);
std::string fingerprint_of(std::span<const RowSize> sizes);

}  // namespace lockstep
