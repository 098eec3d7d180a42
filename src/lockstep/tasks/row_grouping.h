// How the rows of a training run come together in batches: side by side with padding, behind one another without, in bins of
// so many tokens, or beside rows of about their length.
//
// Example:
//   const GroupedRows grouped = group_rows(grouping, measured, bin_tokens, seed, /*shuffle=*/true);
//   grouped.apply(loader_options, data.size(), rows_at_once);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/data/loader.h"
#include "lockstep/model/batch.h"
#include "lockstep/model/model.h"
#include "lockstep/session/row_sizes.h"

namespace lockstep {

/// ms-swift's flags of these names, and LLaVA's group_by_modality_length.
struct RowGrouping {
  bool padding_free = false;
  bool packing = false;
  int64_t packing_length = 0;  // tokens; 0: as max_length
  std::string packing_strategy = "best_fit";
  bool group_by_length = false, group_by_modality_length = false;

  bool streaming = false;              // files are read from one end to the other, and rows not looked at before
  int64_t shuffle_buffer_size = 1000;  // rows among which a streamed one is drawn

  /// Throws UserError(kUsage): what contradicts each other.
  void check() const;
  RowLayout layout() const { return padding_free || packing ? RowLayout::kPacked : RowLayout::kRightPadded; }
  bool sequential() const { return packing_strategy == "sequential"; }
  bool by_size() const { return group_by_length || group_by_modality_length; }
  bool measures() const { return packing || by_size(); }
  /// Of a bin, for a run whose rows and model have these limits. Throws UserError(kUsage) where nothing limits them.
  int64_t bin_tokens(int64_t max_length, int64_t max_positions) const;
  Json as_json() const;
};

/// Throws UserError(kUsage) naming the family where nothing in the model reads where rows end.
void require_layout(const RowGrouping& grouping, const Model& model);

/// The rows of an epoch, brought together.
struct GroupedRows {
  RowGrouping grouping;
  uint64_t seed = 42;
  bool shuffle = true;
  std::shared_ptr<const MeasuredRows> measured;  // null: nobody asks for sizes
  std::shared_ptr<const Bins> bins;              // null: every row stands for itself

  /// What a batch counts, of so many rows.
  int64_t units(int64_t rows) const { return bins ? std::ssize(*bins) : rows; }
  /// In words, the same where the order of an epoch is; "": as without grouping.
  std::string describe() const;
  /// What people should know. `limit`: tokens of a bin.
  std::vector<std::string> notices(int64_t limit) const;
  /// Of an epoch, where sizes play no part.
  std::vector<int64_t> order(int64_t count, int64_t epoch) const;
  /// For a data set of so many rows. `chunk`: rows of a micro-batch over all ranks.
  void apply(LoaderOptions& loader, int64_t rows, int64_t chunk) const;
  /// By what may need most memory, the heaviest first: tokens; values of media; both. Up to `most` bins of each, one after
  /// the other, each once.
  std::vector<std::vector<int64_t>> heaviest_bins(size_t most) const;
};

/// `limit`: tokens of a bin. Throws UserError(kData) where no row can be used.
GroupedRows group_rows(const RowGrouping& grouping, MeasuredRows measured, int64_t limit, uint64_t seed, bool shuffle);

}  // namespace lockstep
